//go:build integration

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/rogpeppe/go-internal/testscript"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// TestRotation rehearses the cluster tazlab and rotates the passwords of its database.
func TestRotation(t *testing.T) {
	scripts(t, "tazlab", "testdata/tazlab-rotate")
}

// TestRotationKilled kills rotations, and recreates the cluster after one.
func TestRotationKilled(t *testing.T) {
	scripts(t, "tazlab", "testdata/tazlab-rotate-killed")
}

// logins are clients of tazlab's database, which log in every 100 ms. One reads the secret in Vault each
// time, and one has read it at the beginning.
type logins struct {
	vault      *realVault
	kubernetes *http.Client
	host       string // of the Kubernetes API
	first      credentials
	superseded bool // the password of the beginning was replaced
	count      int
	failures   []string

	stop context.CancelFunc
	done sync.WaitGroup
}

type loginsKey struct{}

type credentials struct {
	Username string `json:"admin_username"`
	Password string `json:"admin_password"`
}

// probeLogins does what its argument says:
//
//	logins start   begins to log in
//	logins check   fails if a login has failed since the last check; prints what was tried
//	logins stop    ends after a last check
//
// A login with the password of the beginning may fail as soon as PGO's Secret has another one.
func probeLogins(ts *testscript.TestScript, neg bool, args []string) {
	l := ts.Value(loginsKey{}).(*logins)
	if neg || len(args) != 1 {
		ts.Fatalf("usage: logins start|check|stop")
	}
	if args[0] == "start" {
		ts.Check(l.begin(ts.Value(vaultKey{}).(*realVault), ts.Getenv("CASTLE_STATE_DIR")))
		return
	}
	l.stop()
	l.done.Wait()
	for _, failure := range l.failures {
		ts.Logf("%s", failure)
	}
	if len(l.failures) > 0 || l.count == 0 {
		ts.Fatalf("of %d logins %d have failed", l.count, len(l.failures))
	}
	_, err := fmt.Fprintf(ts.Stdout(), "%d logins; the first password was replaced: %t\n", l.count,
		l.superseded)
	ts.Check(err)
	if args[0] == "check" {
		l.run()
	}
}

func (l *logins) begin(v *realVault, state string) (err error) {
	config, err := clientcmd.BuildConfigFromFlags("", filepath.Join(state, "tazlab", "proxmox", "kubeconfig"))
	if err != nil {
		return err
	}
	if l.kubernetes, err = rest.HTTPClientFor(config); err != nil {
		return err
	}
	l.vault, l.host, l.superseded = v, config.Host, false
	if l.first, err = l.read(); err == nil {
		l.run()
	}
	return err
}

func (l *logins) run() {
	ctx, stop := context.WithCancel(context.Background())
	l.stop, l.count = stop, 0
	l.done.Go(func() {
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for {
			l.probe()
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
		}
	})
}

// probe logs in once with each password.
func (l *logins) probe() {
	l.count++
	now, err := l.read()
	if err == nil {
		err = now.login()
	}
	if err != nil {
		l.failures = append(l.failures, fmt.Sprintf("%s: as %s, with the password in Vault: %v",
			time.Now().Format(time.StampMilli), now.Username, err))
	}
	if l.superseded {
		return
	}
	if err = l.first.login(); err == nil {
		return
	}
	var secret struct{ Data struct{ Password []byte } }
	answer, unread := answerOf(l.kubernetes.Get(l.host +
		"/api/v1/namespaces/tazlab-db/secrets/tazlab-db-pguser-" + l.first.Username))
	if unread == nil {
		unread = json.Unmarshal(answer, &secret)
	}
	if unread == nil && string(secret.Data.Password) != l.first.Password {
		l.superseded = true
		return
	}
	l.failures = append(l.failures, fmt.Sprintf("%s: as %s, with the password of the beginning: %v (%v)",
		time.Now().Format(time.StampMilli), l.first.Username, err, unread))
}

// read returns what the secret in Vault tells clients.
func (l *logins) read() (c credentials, err error) {
	var answer struct {
		Data struct{ Data json.RawMessage }
	}
	refused, err := l.vault.ask(http.MethodGet, "secret/data/ephemeral-castle/tazlab/proxmox/database",
		l.vault.root, nil, &answer)
	if err == nil && refused != "" {
		err = fmt.Errorf("vault: %s", refused)
	}
	if err == nil {
		err = json.Unmarshal(answer.Data.Data, &c)
	}
	return c, err
}

func (c credentials) login() error {
	ctx, stop := context.WithTimeout(context.Background(), 10*time.Second)
	defer stop()
	made, err := pgconn.Connect(ctx, fmt.Sprintf(
		"host=192.168.1.184 dbname=tazlab sslmode=require user=%s password=%s", c.Username, c.Password))
	if err != nil {
		return err
	}
	return made.Close(ctx)
}
