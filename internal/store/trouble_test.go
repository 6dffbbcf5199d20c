//go:build integration

package store

import (
	"context"
	"errors"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ephemeral-castle/castle/internal/store/storetest"
)

// troubles checks what a store of a server reports while the proxy before it makes trouble.
func troubles(t *testing.T, server *storetest.Server) {
	direct := opened(t, server.URL)
	if err := direct.Create(t.Context(), "there", []byte("value")); err != nil {
		t.Fatal(err)
	}
	p := storetest.NewProxy(t, server)
	s := opened(t, p.URL)
	// What fails does so within a second; what works has as long as a user's operation: a busy machine may
	// need more than a second for a large value.
	short := func() (restore func()) {
		s.limit = time.Second
		return func() { s.limit = limit }
	}
	works := func(t *testing.T) {
		t.Helper()
		if value, err := s.Read(t.Context(), "there"); err != nil || string(value) != "value" {
			t.Fatalf("read %q, %v", value, err)
		}
	}
	works(t)
	for name, begin := range map[string]func(){"refused": p.Refuse, "stalled": p.Stall,
		"slow": func() { p.Delay(30 * time.Second) }} {
		t.Run(name, func(t *testing.T) {
			begin()
			restore := short()
			expectKind(t, s, Away)
			restore()
			p.Pass(t)
			works(t)
		})
	}
	t.Run("the caller has less time", func(t *testing.T) {
		p.Refuse()
		defer p.Pass(t)
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		_, err := s.Read(ctx, "there")
		// A kept connection is reset; whether there is time for another try depends on the machine.
		if failed, is := errors.AsType[*Error](err); !is || failed.Kind != Away ||
			!errors.Is(err, syscall.ECONNREFUSED) && !errors.Is(err, syscall.ECONNRESET) &&
				!errors.Is(err, syscall.EPIPE) {
			t.Errorf("%v; want why the connection failed", err)
		}
	})
	t.Run("back in time", func(t *testing.T) {
		p.Refuse()
		time.AfterFunc(500*time.Millisecond, func() { p.Pass(t) })
		works(t)
	})
	t.Run("kept connections break", func(t *testing.T) {
		p.Cut()
		works(t)
		if err := s.Create(t.Context(), "after-a-break", nil); err != nil {
			t.Error(err)
		}
	})
	t.Run("cut in the middle", func(t *testing.T) {
		p.CutAfter(1 << 20)
		restore := short()
		if err := s.Create(t.Context(), "cut", large(4<<20)); !isKind(err, Away) {
			t.Errorf("created over a connection that breaks: %v", err)
		}
		restore()
		absent(t, direct, "cut")
		p.Pass(t)
		if err := s.Create(t.Context(), "cut", large(4<<20)); err != nil {
			t.Errorf("created again: %v", err)
		}
	})
	t.Run("cancelled in the middle", func(t *testing.T) {
		p.Stall()
		stopped := errors.New("stopped")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(200*time.Millisecond, func() { cancel(stopped) })
		if err := s.Create(ctx, "cancelled", large(4<<20)); !errors.Is(err, stopped) {
			t.Errorf("created in spite of the cancellation: %v", err)
		}
		p.Cut()
		p.Pass(t)
		absent(t, direct, "cancelled")
	})
}

func expectKind(t *testing.T, s Store, kind Kind) {
	t.Helper()
	ctx := t.Context()
	var all sync.WaitGroup
	for op, do := range map[string]func() error{
		"read":   func() error { _, err := s.Read(ctx, "there"); return err },
		"create": func() error { return s.Create(ctx, "new", []byte("value")) },
		"list":   func() error { _, err := s.List(ctx, ""); return err },
		"delete": func() error { return s.Delete(ctx, "none") },
	} {
		all.Go(func() {
			began := time.Now()
			err := do()
			if !isKind(err, kind) {
				t.Errorf("%s: %v; want %s", op, err, kind)
			}
			if took := time.Since(began); took > 2*time.Second {
				t.Errorf("%s: only after %s: %v", op, took, err)
			}
			t.Log(err)
		})
	}
	all.Wait()
}

func isKind(err error, kind Kind) bool {
	var failed *Error
	return errors.As(err, &failed) && failed.Kind == kind
}

func absent(t *testing.T, s Store, key string) {
	t.Helper()
	if value, err := s.Read(t.Context(), key); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%s: read %d bytes, %v", key, len(value), err)
	}
}

func TestPostgresTroubles(t *testing.T) {
	server := storetest.Postgres(t)
	server.Setenv(t)
	t.Run("two create the table", func(t *testing.T) {
		var all sync.WaitGroup
		for i := range 8 {
			s := opened(t, server.URL)
			all.Go(func() {
				if err := s.Create(t.Context(), "first/"+string(rune('a'+i)), nil); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
	})
	troubles(t, server)
	t.Run("no such database", func(t *testing.T) {
		s := opened(t, strings.Replace(server.URL, "/castle?", "/nothing?", 1))
		expectKind(t, s, Missing)
	})
	t.Run("wrong password", func(t *testing.T) {
		t.Setenv("PGPASSWORD", "wrong")
		expectKind(t, opened(t, server.URL), Refused)
	})
	t.Run("password file", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "pgpass")
		line := "*:*:castle:castle:" + os.Getenv("PGPASSWORD") + "\n"
		if err := os.WriteFile(file, []byte(line), 0o600); err != nil {
			t.Fatal(err)
		}
		t.Setenv("PGPASSWORD", "")
		t.Setenv("PGPASSFILE", file)
		if _, err := opened(t, server.URL).List(t.Context(), ""); err != nil {
			t.Error(err)
		}
	})
}

func TestS3Troubles(t *testing.T) {
	server := storetest.S3(t)
	server.Setenv(t)
	troubles(t, server)
	p := storetest.NewProxy(t, server)
	s := opened(t, p.URL)
	s.limit = time.Second
	for _, answer := range []struct {
		status int
		code   string
		kind   Kind
	}{
		{http.StatusServiceUnavailable, "SlowDown", Away},
		{http.StatusInternalServerError, "InternalError", Away},
		{http.StatusConflict, "ConditionalRequestConflict", Away},
		{http.StatusForbidden, "ExpiredToken", Refused},
		{http.StatusForbidden, "AccessDenied", Refused},
		{http.StatusInsufficientStorage, "InsufficientStorage", Full},
		{http.StatusForbidden, "QuotaExceeded", Full},
		{http.StatusNotFound, "NoSuchBucket", Missing},
		{http.StatusBadRequest, "InvalidArgument", Failed},
	} {
		t.Run(answer.code, func(t *testing.T) {
			p.Answer(answer.status, answer.code)
			expectKind(t, s, answer.kind)
		})
	}
	t.Run("no such bucket", func(t *testing.T) {
		s := opened(t, strings.Replace(server.URL, "castle-state", "nothing", 1))
		expectKind(t, s, Missing)
	})
	t.Run("wrong key", func(t *testing.T) {
		t.Setenv("AWS_SECRET_ACCESS_KEY", "wrong")
		expectKind(t, opened(t, server.URL), Refused)
	})
	t.Run("no credentials", func(t *testing.T) {
		for _, name := range []string{"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"} {
			t.Setenv(name, "")
		}
		t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
		expectKind(t, opened(t, server.URL), Refused)
	})
}
