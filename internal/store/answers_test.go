package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// cloud answers every request alike, to check how answers are understood that no server here gives.
func cloud(t *testing.T) (address string, answers func(status int, header, body string)) {
	t.Helper()
	status, header, body := 0, "", ""
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if name, value, ok := strings.Cut(header, ": "); ok {
			w.Header().Set(name, value)
		}
		w.Header().Set("Content-Type", "application/xml")
		w.WriteHeader(status)
		io.WriteString(w, body) //nolint:errcheck // the client sees it
	}))
	t.Cleanup(server.Close)
	return server.Listener.Addr().String(), func(s int, h, b string) { status, header, body = s, h, b }
}

func TestS3Answers(t *testing.T) {
	address, answers := cloud(t)
	t.Setenv("AWS_ACCESS_KEY_ID", "key")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	s := openedWithin(t, "s3://castle-state/homelab?region=x&use_path_style=true&endpoint=http://"+address)
	for _, c := range []struct {
		status             int
		code               string
		create, list, read Kind
	}{
		{http.StatusPreconditionFailed, "PreconditionFailed", "exists", Failed, Failed},
		{http.StatusConflict, "ConditionalRequestConflict", Away, Away, Away},
		{http.StatusForbidden, "AccessDenied", Refused, Refused, Refused},
		{http.StatusForbidden, "", Refused, Refused, Refused},
		{http.StatusBadRequest, "ExpiredToken", Refused, Refused, Refused},
		{http.StatusNotFound, "NoSuchBucket", Missing, Missing, Missing},
		{http.StatusNotFound, "NoSuchKey", Missing, Missing, Missing}, // the bucket is not known to exist
		{http.StatusServiceUnavailable, "SlowDown", Away, Away, Away},
		{http.StatusInsufficientStorage, "XMinioStorageFull", Full, Full, Full},
		{http.StatusNotImplemented, "NotImplemented", Failed, Failed, Failed},
	} {
		answers(c.status, "", "<Error><Code>"+c.code+"</Code><Message>the reason</Message></Error>")
		expectKinds(t, s, c.status, c.create, c.list)
		if _, err := s.Read(t.Context(), "key"); kindOf(err) != c.read {
			t.Errorf("%d %s: read: %v; want %s", c.status, c.code, err, c.read)
		}
	}
}

func openedWithin(t *testing.T, url string) *retried {
	t.Helper()
	s, err := Open(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	s.(*retried).limit = 300 * time.Millisecond
	return s.(*retried)
}

func expectKinds(t *testing.T, s *retried, status int, create, list Kind) {
	t.Helper()
	silent(t, func() {
		err := s.Create(t.Context(), "key", []byte("value"))
		got := kindOf(err)
		if errors.Is(err, fs.ErrExist) {
			got = "exists"
		}
		if got != create {
			t.Errorf("%d: create: %v; want %s", status, err, create)
		}
		if _, err := s.List(t.Context(), ""); kindOf(err) != list {
			t.Errorf("%d: list: %v; want %s", status, err, list)
		}
	})
}

func kindOf(err error) Kind {
	var failed *Error
	errors.As(err, &failed)
	if failed == nil {
		return ""
	}
	return failed.Kind
}

func TestS3WithoutCredentials(t *testing.T) {
	for name, value := range map[string]string{"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": "",
		"AWS_PROFILE": "", "AWS_EC2_METADATA_DISABLED": "true", "HOME": t.TempDir()} {
		t.Setenv(name, value)
	}
	s := openedWithin(t, "s3://castle-state?region=x&endpoint=http://127.0.0.1:1")
	silent(t, func() {
		if _, err := s.Read(t.Context(), "key"); kindOf(err) != Refused {
			t.Errorf("read without credentials: %v", err)
		}
	})
}

func TestPostgresErrorsHaveKinds(t *testing.T) {
	for code, want := range map[string]class{
		"28P01": {kind: Refused}, "28000": {kind: Refused}, "42501": {kind: Refused},
		"3D000": {kind: Missing}, "53100": {kind: Full}, "53300": {kind: Away, passes: true},
		"57P01": {kind: Away, passes: true}, "57P03": {kind: Away, passes: true},
		"08006": {kind: Away, passes: true}, "40001": {kind: Away, passes: true}, "22001": {kind: Failed},
	} {
		got := (&postgres{}).classify(fmt.Errorf("insert: %w", &pgconn.PgError{Code: code, Message: "why"}))
		if got.kind != want.kind || got.passes != want.passes {
			t.Errorf("%s: %+v, want %+v", code, got, want)
		}
	}
}

func TestFolderErrorsHaveKinds(t *testing.T) {
	gone := openedWithin(t, "file://"+filepath.Join(t.TempDir(), "gone"))
	for op, do := range map[string]func() error{
		"read":   func() error { _, err := gone.Read(t.Context(), "a/b"); return err },
		"create": func() error { return gone.Create(t.Context(), "a/b", nil) },
		"list":   func() error { _, err := gone.List(t.Context(), ""); return err },
		"delete": func() error { return gone.Delete(t.Context(), "a/b") },
	} {
		if err := do(); kindOf(err) != Missing {
			t.Errorf("%s in a folder that does not exist: %v", op, err)
		}
	}
	for number, want := range map[error]Kind{syscall.ENOSPC: Full, syscall.EDQUOT: Full,
		syscall.EACCES: Refused, syscall.EROFS: Refused, syscall.ESTALE: Away, syscall.EIO: Failed} {
		err := &os.PathError{Op: "write", Path: "x", Err: number}
		if got := (&folder{}).classify(err); got.kind != want {
			t.Errorf("%v: %s, want %s", number, got.kind, want)
		}
	}
}

func TestFolderKeepsItsFilesPrivate(t *testing.T) {
	dir := t.TempDir()
	old := syscall.Umask(0)
	defer syscall.Umask(old)
	if err := openedWithin(t, "file://"+dir).Create(t.Context(), "a/b/c", []byte("secret")); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]fs.FileMode{"a": 0o700, "a/b": 0o700, "a/b/c": 0o600} {
		if info, err := os.Stat(filepath.Join(dir, path)); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v, %v; want %v", path, info.Mode(), err, want)
		}
	}
}

// TestFolderSweepsAfterKilledWriters keeps the temporary file of a writer that may still be at work.
func TestFolderSweepsAfterKilledWriters(t *testing.T) {
	dir := t.TempDir()
	s := openedWithin(t, "file://"+dir)
	for name, age := range map[string]time.Duration{".new.castle-1234567890": time.Minute,
		".old.castle-1234567890": 25 * time.Hour, ".other": 25 * time.Hour} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte("half"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, time.Time{}, time.Now().Add(-age)); err != nil {
			t.Fatal(err)
		}
	}
	if keys, err := s.List(t.Context(), ""); err != nil || len(keys) != 0 {
		t.Errorf("listed %q, %v", keys, err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 2 || entries[0].Name() != ".new.castle-1234567890" {
		t.Errorf("left: %v, %v", entries, err)
	}
}

func TestNetworkErrorsThatPass(t *testing.T) {
	for _, err := range []error{io.ErrUnexpectedEOF, &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED},
		context.DeadlineExceeded, &net.DNSError{IsTimeout: true}} {
		if c := connection(err); c.kind != Away || !c.passes {
			t.Errorf("%v: %+v", err, c)
		}
	}
	if c := connection(&net.DNSError{IsNotFound: true}); c.kind != Away || c.passes {
		t.Errorf("an unknown host: %+v", c)
	}
}
