//go:build integration

package postgres

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/store"
	"github.com/ephemeral-castle/castle/internal/survivor"
)

// server is a real PostgreSQL that archives with the real pgBackRest into a folder.
type server struct {
	t    *testing.T
	dir  string
	repo string
}

// start makes a database with a full and an incremental backup, and a row after each.
func start(t *testing.T) *server {
	t.Helper()
	s := &server{t: t, dir: t.TempDir(), repo: filepath.Join(t.TempDir(), "repo")}
	if err := os.Mkdir(s.repo, 0o700); err != nil {
		t.Fatal(err)
	}
	data := filepath.Join(s.dir, "data")
	s.run(s.program("initdb"), "-D", data, "-U", "postgres", "-A", "trust")
	s.write("pgbackrest.conf", fmt.Sprintf("[global]\nrepo1-path=%s/life\nlog-path=%[2]s\n"+
		"lock-path=%[2]s/lock\nspool-path=%[2]s/spool\nlog-level-file=off\nstart-fast=y\n"+
		"repo1-retention-full=9\n[db]\n"+
		"pg1-path=%[3]s\npg1-socket-path=%[2]s\npg1-user=postgres\n", s.repo, s.dir, data))
	config := "--config=" + filepath.Join(s.dir, "pgbackrest.conf")
	s.append(filepath.Join(data, "postgresql.conf"), fmt.Sprintf("listen_addresses = ''\n"+
		"unix_socket_directories = '%s'\narchive_mode = on\narchive_command = 'pgbackrest %s --stanza=db "+
		"archive-push %%p'\n", s.dir, config))
	s.run(s.program("pg_ctl"), "-D", data, "-l", filepath.Join(s.dir, "log"), "-w", "start")
	t.Cleanup(func() { s.run(s.program("pg_ctl"), "-D", data, "-m", "immediate", "stop") })
	s.run("pgbackrest", config, "--stanza=db", "stanza-create")
	s.run("pgbackrest", config, "--stanza=db", "--type=full", "backup")
	s.query("CREATE TABLE a (b int); INSERT INTO a VALUES (1)")
	s.run("pgbackrest", config, "--stanza=db", "--type=incr", "backup")
	return s
}

func (s *server) program(name string) string {
	s.t.Helper()
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin/" + name)
	if err != nil || len(found) == 0 {
		s.t.Fatalf("PostgreSQL is not installed (make vault): %v", err)
	}
	return found[len(found)-1]
}

// run runs a program that refuses root, in a user namespace where root has another id.
func (s *server) run(name string, args ...string) string {
	s.t.Helper()
	c := exec.Command(name, args...)
	c.Dir, c.Env = s.dir, []string{"HOME=" + s.dir, "LC_ALL=C", "PATH=" + os.Getenv("PATH")}
	if os.Geteuid() == 0 {
		id := func(host int) []syscall.SysProcIDMap {
			return []syscall.SysProcIDMap{{ContainerID: 65534, HostID: host, Size: 1}}
		}
		c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER, UidMappings: id(0),
			GidMappings: id(os.Getegid())}
	}
	log, err := os.CreateTemp(s.t.TempDir(), "out") // a server that it starts keeps a pipe open
	if err != nil {
		s.t.Fatal(err)
	}
	c.Stdout, c.Stderr = log, log
	err = c.Run()
	out, unread := os.ReadFile(log.Name())
	if err != nil || unread != nil {
		s.t.Fatalf("%s: %v %v\n%s", filepath.Base(name), err, unread, out)
	}
	return strings.TrimSpace(string(out))
}

func (s *server) query(statement string) string {
	s.t.Helper()
	return s.run(s.program("psql"), "-h", s.dir, "-U", "postgres", "-Atc", statement)
}

func (s *server) write(name, text string) {
	s.t.Helper()
	if err := os.WriteFile(filepath.Join(s.dir, name), []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
}

func (s *server) append(path, text string) {
	s.t.Helper()
	before, err := os.ReadFile(path)
	if err == nil {
		err = os.WriteFile(path, append(before, text...), 0o600)
	}
	if err != nil {
		s.t.Fatal(err)
	}
}

// position is where the database is now; its segment is not archived yet.
func (s *server) position() map[string]string {
	s.t.Helper()
	line := s.query("SELECT l, pg_walfile_name(l), (SELECT setting FROM pg_settings WHERE name = " +
		"'wal_segment_size') FROM pg_current_wal_insert_lsn() AS l")
	parts := strings.Split(line, "|")
	return map[string]string{lsn: parts[0], lastWAL: parts[1], timeline: parts[1][:8], segments: parts[2]}
}

// prove reads the repository as castle does.
func (s *server) prove(at map[string]string) (string, error) {
	s.t.Helper()
	in, err := store.Open(s.t.Context(), "file://"+s.repo)
	if err != nil {
		s.t.Fatal(err)
	}
	r := &repository{in: in, path: "/life"}
	b, gap, err := r.newest(s.t.Context(), survivor.Save{ID: "one", Path: r.path, Position: at})
	if err != nil {
		return "", err
	}
	return strings.TrimSpace(b.label + " " + gap), nil
}

// archived waits until a segment is in the repository.
func (s *server) archived(at map[string]string) {
	s.t.Helper()
	check := func(context.Context) error { _, err := s.prove(at); return err }
	if err := gate.Wait(s.t.Context(), gate.Gate{Name: "archive", Check: check}, gate.Policy{},
		gate.Listener{}); err != nil {
		s.t.Fatal(err)
	}
}

func TestASaveCountsOnceEverythingIsInTheRepository(t *testing.T) {
	s := start(t)
	s.query("INSERT INTO a VALUES (2)")
	at := s.position()
	if _, err := s.prove(at); gate.KindOf(err) != gate.Waits {
		t.Fatalf("the log ends before the save, and castle answers %v", err)
	}
	s.query("SELECT pg_switch_wal()")
	s.archived(at)
	label, err := s.prove(at)
	if err != nil || !strings.HasSuffix(label, "I") {
		t.Fatalf("backup %q, %v; the newest one is incremental", label, err)
	}
	stanza := filepath.Join(s.repo, "life")
	segment := one(t, filepath.Join(stanza, "archive/db/*/*", at[lastWAL]+"-*"))
	for name, c := range map[string]struct{ file, want string }{
		"a gap in the log":   {one(t, filepath.Join(stanza, "archive/db/*/*/*0004-*")), "the log has a gap"},
		"no last segment":    {segment, "is not archived yet"},
		"a missing file":     {one(t, filepath.Join(stanza, "backup/db/*F/pg_data/PG_V*")), "PG_VERSION"},
		"a missing manifest": {one(t, filepath.Join(stanza, "backup/db", label, "backup.manifest")), ""},
	} {
		t.Run(name, func(t *testing.T) {
			if err := os.Rename(c.file, c.file+".away"); err != nil {
				t.Fatal(err)
			}
			defer os.Rename(c.file+".away", c.file) //nolint:errcheck // the next one would fail
			got, err := s.prove(at)
			if c.want == "" && (err != nil || got == label) {
				t.Errorf("%q, %v: castle should have taken the backup before", got, err)
			}
			if c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("%q, %v", got, err)
			}
		})
	}
	s.query("INSERT INTO a VALUES (3)")
	between := s.position()
	s.query("SELECT pg_switch_wal()")
	s.query("INSERT INTO a VALUES (4)")
	after := s.position()
	s.query("SELECT pg_switch_wal()")
	s.archived(after)
	if err := os.Remove(one(t, filepath.Join(stanza, "archive/db/*/*", between[lastWAL]+"-*"))); err != nil {
		t.Fatal(err)
	}
	if got, err := s.prove(at); err != nil || got != label+" segment "+between[lastWAL][8:] {
		t.Errorf("%q, %v: castle should have named the segment that lacks after the save", got, err)
	}
	text, err := os.ReadFile(segment)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(segment, text[:len(text)/2], 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := s.prove(at); err == nil || !strings.Contains(err.Error(), filepath.Base(segment)) {
		t.Errorf("half of a segment: %v", err)
	}
}

// one is the one file that a pattern matches.
func one(t *testing.T, pattern string) string {
	t.Helper()
	found, err := filepath.Glob(pattern)
	if err != nil || len(found) != 1 {
		t.Fatalf("%s: %v, %v", pattern, found, err)
	}
	return found[0]
}
