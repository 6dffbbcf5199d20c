package httpjson

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

func TestRepeatKeepsItsPromises(t *testing.T) {
	refused := &net.OpError{Op: "dial", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	for name, test := range map[string]struct {
		err   error
		heals int           // the try that succeeds; 0: none
		left  time.Duration // that ctx has; 0: no end
		tries int
		most  time.Duration
	}{
		"a refused connection":       {err: refused, tries: 6, most: 9 * time.Second},
		"a reset":                    {err: syscall.ECONNRESET, tries: 6, most: 9 * time.Second},
		"an answer cut short":        {err: io.ErrUnexpectedEOF, tries: 6, most: 9 * time.Second},
		"a failed server":            {err: &Error{Status: 500}, tries: 6, most: 9 * time.Second},
		"somebody's page":            {err: NotExpected(200), tries: 6, most: 9 * time.Second},
		"a failure that passes":      {err: io.EOF, heals: 3, tries: 3, most: time.Second},
		"a caller with 9 seconds":    {err: refused, left: 9 * time.Second, tries: 4, most: 2 * time.Second},
		"a caller with one second":   {err: refused, left: 900 * time.Millisecond, tries: 1},
		"a refused login":            {err: &Error{Status: 401}, tries: 1},
		"an unknown object":          {err: &Error{Status: 404}, tries: 1},
		"a page with that status":    {err: &Error{Status: 404, Foreign: true}, tries: 1},
		"a name that does not exist": {err: &net.DNSError{IsNotFound: true}, tries: 1},
		"another's certificate":      {err: &tls.CertificateVerificationError{Err: io.EOF}, tries: 1},
		"a timeout":                  {err: os.ErrDeadlineExceeded, tries: 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, stop := context.WithCancel(t.Context())
				defer stop()
				if test.left > 0 {
					ctx, stop = context.WithTimeout(ctx, test.left)
					defer stop()
				}
				began, tries := time.Now(), 0
				err := Repeat(ctx, func(context.Context) error {
					if tries++; tries == test.heals {
						return nil
					}
					return test.err
				})
				if test.heals > 0 && err != nil || test.heals == 0 && !errors.Is(err, test.err) {
					t.Errorf("%v", err)
				}
				if took := time.Since(began); tries != test.tries || took > test.most {
					t.Errorf("%d tries in %s, want %d", tries, took, test.tries)
				}
				if test.tries == 6 && !strings.HasSuffix(err.Error(), "; tried 6 times in 8s") {
					t.Errorf("%v", err)
				}
			})
		})
	}
}

func TestRepeatIsBoundedAndEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began, tries := time.Now(), 0
		err := Repeat(t.Context(), func(ctx context.Context) error {
			tries++
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(25 * time.Second): // a server that fails slowly
				return io.EOF
			}
		})
		if took := time.Since(began); took > time.Minute || tries != 3 || !errors.Is(err, io.EOF) {
			t.Errorf("%d tries in %s: %v", tries, took, err)
		}
		ctx, stop := context.WithCancel(t.Context())
		began, tries = time.Now(), 0
		err = Repeat(ctx, func(ctx context.Context) error {
			if tries++; tries == 3 {
				time.AfterFunc(time.Millisecond, stop)
			}
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return io.EOF
		})
		if took := time.Since(began); !errors.Is(err, context.Canceled) || took > time.Second {
			t.Errorf("interrupted after %s: %v", took, err)
		}
	})
}

func TestOnlyReadsAreRepeated(t *testing.T) {
	requests := 0
	c := client(t, func(w http.ResponseWriter, _ *http.Request) {
		if requests++; requests == 1 {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		w.Write([]byte(`{}`)) //nolint:errcheck // a test
	})
	if err := c.Do(t.Context(), http.MethodPost, "/", nil, nil); Status(err) != 502 || requests != 1 {
		t.Errorf("a write: %v after %d requests", err, requests)
	}
	requests = 0
	if err := c.Do(t.Context(), http.MethodGet, "/", nil, &struct{}{}); err != nil || requests != 2 {
		t.Errorf("a read: %v after %d requests", err, requests)
	}
}

func TestAPageIsNoMissingObject(t *testing.T) {
	for body, want := range map[string]bool{`{"errors": []}`: true, `<html>`: false, `{"err`: false,
		``: false} {
		c := client(t, func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusNotFound)
			w.Write([]byte(body)) //nolint:errcheck // a test
		})
		if err := c.Do(t.Context(), http.MethodGet, "/", nil, nil); NotFound(err) != want ||
			Status(err) != 404 {
			t.Errorf("%q: %v", body, err)
		}
	}
}
