package datacenter

import (
	"cmp"
	"context"
	"net"
	"net/http"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/ephemeral-castle/castle/lab/internal/backupstore"
	"github.com/ephemeral-castle/castle/lab/internal/network"
	"github.com/ephemeral-castle/castle/lab/internal/objectstore"
)

// ObjectStore describes the S3 bucket that the configuration expects. It outlives the clusters of a
// rehearsal, as the real one does.
type ObjectStore struct {
	Program        string // lab-s3
	Endpoint       string // HOST or HOST:PORT, always with TLS
	Bucket, Region string
	// AccessKey and SecretKey are those of the only account; empty for the secrets AWS_ACCESS_KEY_ID and
	// AWS_SECRET_ACCESS_KEY that the lab makes up.
	AccessKey, SecretKey string
}

// Host is the name of the endpoint.
func (o ObjectStore) Host() string { return o.endpoint().Host }

func (o ObjectStore) endpoint() network.Endpoint {
	e := network.Endpoint{Host: strings.ToLower(o.Endpoint), Port: 443, TLS: true}
	if host, port, err := net.SplitHostPort(e.Host); err == nil {
		if n, err := strconv.ParseUint(port, 10, 16); err == nil {
			e.Host, e.Port = host, uint16(n)
		}
	}
	return e
}

// bucketFolder is the variable with the folder where the objects of the bucket lie, for commands that break
// something on purpose.
const bucketFolder = "CASTLE_LAB_BUCKET"

// shelf is the S3 server, with the fault s3-refuses.
type shelf struct {
	server *objectstore.Server
	log    *logger
	after  time.Duration // how long it refuses; 0: never

	mu      sync.Mutex
	blocks  bool      // a backup of a volume has its blocks
	whole   bool      // the first backup is complete
	refuses time.Time // until then
}

// shelve starts the S3 server with its bucket.
func (d *Datacenter) shelve(ctx context.Context) (*shelf, error) {
	c := d.config.ObjectStore
	s, err := objectstore.Start(ctx, objectstore.Options{
		Program: c.Program, Dir: filepath.Join(d.config.Dir, "s3"), Address: d.config.Front,
		Bucket: c.Bucket, Region: c.Region,
		AccessKey: cmp.Or(c.AccessKey, d.folders.secrets["AWS_ACCESS_KEY_ID"]),
		SecretKey: cmp.Or(c.SecretKey, d.folders.secrets["AWS_SECRET_ACCESS_KEY"]), Log: d.config.Log,
	})
	return &shelf{server: s, log: d.log, after: d.config.Faults.Times["s3-refuses"]}, err
}

func (s *shelf) handler() http.Handler {
	server := s.server.Handler()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.refused(r, time.Now()) {
			w.Header().Set("Content-Type", "application/xml")
			w.WriteHeader(http.StatusServiceUnavailable)
			//nolint:errcheck // the client may have gone
			w.Write([]byte(`<?xml version="1.0" encoding="UTF-8"?><Error><Code>SlowDown</Code>` +
				`<Message>Please reduce your request rate.</Message></Error>`))
			return
		}
		server.ServeHTTP(w, r)
		s.served(r)
	})
}

// refused is the fault s3-refuses: after the first backup, from the next request of another client than
// pgBackRest and Longhorn on, the server refuses everybody for its time.
func (s *shelf) refused(r *http.Request, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	agent := strings.ToLower(r.UserAgent())
	if s.after != 0 && s.whole && s.refuses.IsZero() && !strings.HasPrefix(agent, "pgbackrest") &&
		!strings.Contains(agent, backupstore.Agent) {
		s.refuses = now.Add(s.after)
		s.log.begins("s3-refuses")
		time.AfterFunc(s.after, func() { s.log.ends("s3-refuses") })
	}
	return now.Before(s.refuses)
}

// served notices the end of a backup: pgBackRest writes the manifest last, and then the list of backups.
// Longhorn writes the file of the volume last.
func (s *shelf) served(r *http.Request) {
	if r.Method != http.MethodPut {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch name := path.Base(r.URL.Path); {
	case name == "backup.manifest", name == "volume.cfg" && s.blocks:
		s.whole = true
	case strings.HasPrefix(name, "backup_"):
		s.blocks = true
	}
}
