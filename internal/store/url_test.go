package store

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"testing"
)

func TestOpenRefusesURLs(t *testing.T) {
	t.Setenv("AWS_REGION", "")
	t.Setenv("PGDATABASE", "")
	for url, want := range map[string]string{
		"":                                      "unknown scheme. Write one of s3://",
		"/srv/castle":                           "unknown scheme. Write one of s3://",
		"s4://state":                            "unknown scheme. Write one of s3://",
		"mem://state":                           "unknown scheme. Write one of s3://",
		"s3:///prefix?region=x":                 "names no bucket",
		"s3://state":                            "?region=",
		"s3://state?region=x&colour=red":        "unknown parameter colour",
		"s3://state?region=x&region=y":          "region stands twice",
		"s3://state?region=x&use_path_style=no": "must be true or false",
		"gs://state":                            "unknown scheme. Write one of s3://",
		"s3://state?sig=hunter2":                "Remove the parameter sig",
		"file://srv/castle":                     "names no folder. Write file:///srv/castle",
		"file:srv/castle":                       "names no folder. Write file:///srv/castle",
		"file:///":                              "names no folder",
		"file:///srv?create_dir=yes":            "unknown parameter create_dir",
		"postgres://castle@db":                  "names no database",
		"postgres://castle@db/state?sslmode=on": "sslmode is invalid",
		"s3://state#part?region=x":              "after #",
		"postgres://castle:hunter2@db/state":    "Remove the password",
		"s3://AKIA:hunter2@state?region=x":      "Remove the password",
		"s3://hunter2@state?region=x":           "Remove the user or key",
		"postgres://db/state?password=hunter2":  "Remove the parameter password",
		"postgres://c@db/s?sslpassword=hunter2": "Remove the parameter sslpassword",
		"s3://state?secret_access_key=hunter2":  "Remove the parameter secret_access_key",
		"s3://state?awsAccessKey=hunter2":       "Remove the parameter awsAccessKey",
		"postgres://castle:hunter2/x@db/state":  "cannot be parsed",
		"postgres://castle:hunter2%zz@db/state": "cannot be parsed",
		"postgres://db/s?password=hunter2%zz":   "cannot be parsed",
	} {
		_, err := Open(t.Context(), url)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want %q", url, err, want)
		}
		if err != nil && strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: the error repeats the secret: %v", url, err)
		}
	}
}

func TestOpenMakesNoRequest(t *testing.T) {
	for name, value := range map[string]string{"AWS_ACCESS_KEY_ID": "", "AWS_PROFILE": "", "PGPASSFILE": "",
		"HOME": t.TempDir()} {
		t.Setenv(name, value)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	connected := make(chan struct{})
	go func() {
		if _, err := l.Accept(); err == nil {
			close(connected)
		}
	}()
	address := l.Addr().String()
	for _, url := range []string{"s3://state/a/b?region=x&use_path_style=true&endpoint=http://" + address,
		"file:///does/not/exist", "postgres://castle@" + address + "/castle",
		"postgresql:///castle?host=/run/postgresql"} {
		s, err := Open(t.Context(), url)
		if err != nil {
			t.Error(err)
			continue
		}
		if s.URL() != url {
			t.Errorf("the URL is %q, not %q", s.URL(), url)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	select {
	case <-connected:
		t.Error("Open has connected")
	default:
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}

// silent fails the test if do writes to the terminal.
func silent(t *testing.T, do func()) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	written := make(chan []byte)
	go func() {
		all, _ := io.ReadAll(r) //nolint:errcheck // the pipe is closed below
		written <- all
	}()
	stdout, stderr := os.Stdout, os.Stderr
	os.Stdout, os.Stderr = w, w
	do()
	os.Stdout, os.Stderr = stdout, stderr
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if all := <-written; len(all) > 0 {
		t.Errorf("written to the terminal: %s", all)
	}
}

func TestOperationsReturnTheCauseOfACancellation(t *testing.T) {
	stopped := errors.New("stopped")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(stopped)
	s := &retried{url: "test:", backend: &folder{t.TempDir()}, limit: limit}
	if err := s.Create(ctx, "key", nil); !errors.Is(err, stopped) {
		t.Errorf("create: %v", err)
	}
	if _, err := s.List(ctx, ""); !errors.Is(err, stopped) {
		t.Errorf("list: %v", err)
	}
}
