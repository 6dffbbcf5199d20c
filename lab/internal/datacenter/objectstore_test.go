package datacenter

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ephemeral-castle/castle/lab/internal/objectstore"
)

func TestAnObjectStoreAnswersAtItsEndpoint(t *testing.T) {
	program, err := filepath.Abs("../../../bin/" + objectstore.Program)
	if err != nil {
		t.Fatal(err)
	}
	endpoint := "s3.example.org:" + freePort(t)
	d, log := start(t, Config{ObjectStore: &ObjectStore{Program: program, Endpoint: endpoint,
		Bucket: "backups", Region: "eu-south-1"}})
	folder, err := os.Stat(d.Credentials()[bucketFolder])
	if err != nil || !folder.IsDir() {
		t.Errorf("the bucket: %v", err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(d.config.Authority.Bundle())
	client := http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots},
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network,
				strings.Replace(address, "s3.example.org", "127.0.7.2", 1))
		}}}
	answer, err := client.Get("https://" + endpoint + "/backups/none")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if body, err := io.ReadAll(answer.Body); err != nil || answer.StatusCode != http.StatusForbidden ||
		!strings.Contains(string(body), "<Code>AccessDenied</Code>") {
		t.Errorf("without a signature: %s %s, %v", answer.Status, body, err)
	}
	if strings.Contains(log.String(), d.folders.secrets["AWS_SECRET_ACCESS_KEY"]) {
		t.Error("the log holds the key")
	}
}

func TestABackupOfAVolumeIsCompleteWithItsVolume(t *testing.T) {
	s := &shelf{after: time.Minute, log: newLogger(Config{})}
	const volume = "/tazlab/one/backupstore/volumes/77/c7/data/"
	for _, step := range []struct {
		file  string
		whole bool
	}{{"volume.cfg", false}, {"backups/backup_a.cfg", false}, {"blocks/01/02/0102.blk", false},
		{"backups/backup_a.cfg", false}, {"volume.cfg", true}} {
		s.served(httptest.NewRequest(http.MethodPut, "https://s3.example.org"+volume+step.file, nil))
		if s.whole != step.whole {
			t.Errorf("after %s: whole is %v", step.file, s.whole)
		}
	}
	for agent, want := range map[string]bool{"aws-sdk-go-v2/1.46.0 longhorn": false,
		"aws-sdk-go-v2/1.46.0": true} {
		r := httptest.NewRequest(http.MethodGet, "https://s3.example.org/tazlab", nil)
		r.Header.Set("User-Agent", agent)
		if s.refuses = (time.Time{}); s.refused(r, time.Now()) != want {
			t.Errorf("%s: refused is not %v", agent, want)
		}
	}
}

func TestTheObjectStoreRefusesAfterTheFirstBackup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		s := &shelf{after: time.Minute, log: newLogger(Config{Log: &log})}
		ask := func(method, path, agent string) bool {
			r := httptest.NewRequest(method, "https://s3.example.org/tazlab"+path, nil)
			r.Header.Set("User-Agent", agent)
			refused := s.refused(r, time.Now())
			if !refused {
				s.served(r)
			}
			return refused
		}
		const manifest = "/one/backup/db/20261127-005350F/backup.manifest"
		var refused []bool
		for _, request := range [][3]string{
			{http.MethodGet, manifest, "castle"}, // before there is one
			{http.MethodPut, manifest, "pgBackRest/2.45"},
			{http.MethodPut, "/one/backup/db/backup.info", "pgBackRest/2.45"},
			{http.MethodGet, manifest, "castle"},
			{http.MethodPut, "/one/archive/db/archive.info", "pgBackRest/2.45"},
		} {
			refused = append(refused, ask(request[0], request[1], request[2]))
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		refused = append(refused, ask(http.MethodGet, manifest, "castle"))
		if got := fmt.Sprint(refused); got != "[false false false true true false]" {
			t.Errorf("refused: %s", got)
		}
		if !strings.Contains(log.String(), "fault s3-refuses: begins") ||
			!strings.Contains(log.String(), "60.000s fault s3-refuses: ends") {
			t.Errorf("log: %s", log.String())
		}
	})
}
