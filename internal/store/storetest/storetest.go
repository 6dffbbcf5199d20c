// Package storetest gives tests real stores: PostgreSQL from Debian, an S3 server (bin/lab-s3, which
// `make s3` builds) and a folder. Each listens on 127.0.0.1, has random credentials and ends with the test.
//
//	for _, s := range storetest.Servers(t) {
//		s.Setenv(t)                   // or hand s.Env to a process
//		p := storetest.NewProxy(t, s) // of those with an address
//		p.Delay(20 * time.Millisecond)
//		store.Open(ctx, p.URL)        // or s.URL, without the proxy
//	}
//
// Only tests with the tag integration use the first two: both must be installed, and a test fails without.
// They start in a rehearsal's network namespace too, and are then reached only there.
package storetest

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Server is a store that runs.
type Server struct {
	Name string   // postgres, s3 or file
	URL  string   // for store.Open and CASTLE_STATE_STORE; without credentials
	Env  []string // the credentials, as NAME=value
	// Address is where it listens; empty for a folder.
	Address string
	// Dir holds what it stores, for tests that break it.
	Dir string
}

// Servers starts one of each.
func Servers(t testing.TB) []*Server {
	t.Helper()
	return []*Server{Postgres(t), S3(t), Folder(t)}
}

// Setenv gives this process the server's credentials for as long as the test lasts.
func (s *Server) Setenv(t testing.TB) {
	t.Helper()
	for _, entry := range s.Env {
		name, value, _ := strings.Cut(entry, "=")
		t.Setenv(name, value)
	}
}

// Folder makes a folder for a file:// store.
func Folder(t testing.TB) *Server {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "store")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	return &Server{Name: "file", URL: "file://" + dir, Dir: dir}
}

// S3 starts an S3 server with the bucket castle-state. The store has the prefix homelab in it.
func S3(t testing.TB) *Server {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "s3")
	if err := os.MkdirAll(filepath.Join(dir, "castle-state"), 0o700); err != nil {
		t.Fatal(err)
	}
	access, secret, address := rand.Text(), rand.Text(), freeAddress(t)
	c := exec.Command(program(t, "lab-s3"), "--address", address, "--folder", dir)
	c.Env = []string{"ROOT_ACCESS_KEY=" + access, "ROOT_SECRET_KEY=" + secret, "TMPDIR=" + t.TempDir()}
	run(t, c, func(ctx context.Context) error {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/healthz", nil)
		if err != nil {
			return err
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return err
		}
		return response.Body.Close()
	})
	return &Server{Name: "s3", Address: address, Dir: dir, URL: s3URL(address),
		Env: []string{"AWS_ACCESS_KEY_ID=" + access, "AWS_SECRET_ACCESS_KEY=" + secret}}
}

func s3URL(address string) string {
	return "s3://castle-state/homelab?region=us-east-1&use_path_style=true&endpoint=http://" + address
}

// Postgres starts PostgreSQL with an empty database castle and a user castle who has a password.
func Postgres(t testing.TB) *Server {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "postgres")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	data, secret, password := filepath.Join(dir, "data"), filepath.Join(dir, "password"), rand.Text()
	if err := os.WriteFile(secret, []byte(password), 0o600); err != nil {
		t.Fatal(err)
	}
	command := func(name string, args ...string) *exec.Cmd { return unprivileged(t, dir, name, args...) }
	finish(t, command("initdb", "--pgdata", data, "--username", "castle", "--pwfile", secret, "--no-sync",
		"--auth-local", "trust", "--auth-host", "scram-sha-256", "--encoding", "UTF8", "--locale", "C"))
	single := command("postgres", "--single", "-D", data, "-c", "fsync=off", "postgres")
	single.Stdin = strings.NewReader("CREATE DATABASE castle\n")
	finish(t, single)
	address := freeAddress(t)
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	// No socket: the kernel would limit how long the folder's name may be.
	run(t, command("postgres", "-D", data, "-k", "", "-h", host, "-p", port, "-c", "fsync=off"),
		func(ctx context.Context) error {
			ready := unprivileged(t, dir, "pg_isready", "-q", "-h", host, "-p", port)
			return ready.Run()
		})
	return &Server{Name: "postgres", Address: address, Dir: data, URL: postgresURL(address),
		Env: []string{"PGPASSWORD=" + password}}
}

func postgresURL(address string) string {
	return "postgres://castle@" + address + "/castle?sslmode=disable"
}

// finish runs a program that ends by itself.
func finish(t testing.TB, c *exec.Cmd) {
	t.Helper()
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", filepath.Base(c.Path), err, out)
	}
}

// run starts a server, waits until it is ready, and ends it with the test or with this process.
func run(t testing.TB, c *exec.Cmd, ready func(context.Context) error) {
	t.Helper()
	var log bytes.Buffer
	c.Stdout, c.Stderr = &log, &log
	child(c)
	started, ended := make(chan error, 1), make(chan struct{})
	go func() {
		runtime.LockOSThread() // the kernel ends a child with the thread that made it
		err := c.Start()
		started <- err
		if err == nil {
			c.Wait() //nolint:errcheck // it is killed in the end
			close(ended)
		}
	}()
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Process.Signal(syscall.SIGQUIT); err != nil && !errors.Is(err, os.ErrProcessDone) {
			t.Error(err)
		}
		<-ended
	})
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	for {
		err := ready(ctx)
		if err == nil {
			return
		}
		select {
		case <-again.C:
		case <-ended:
			t.Fatalf("%s ended before it was ready:\n%s", filepath.Base(c.Path), log.String())
		case <-ctx.Done():
			t.Fatalf("%s is not ready: %v", filepath.Base(c.Path), err)
		}
	}
}

// program is one that make builds into bin/.
func program(t testing.TB, name string) string {
	t.Helper()
	dir, err := os.Getwd()
	for ; err == nil && dir != "/"; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "lab", "s3", "go.mod")); err != nil {
			continue
		}
		path := filepath.Join(dir, "bin", name)
		if _, err := os.Stat(path); err != nil {
			t.Fatalf("it is not built (make s3): %v", err)
		}
		return path
	}
	t.Fatalf("%s: not in a clone of castle: %v", name, err)
	return ""
}

// freeAddress returns an address on loopback where nothing listens.
func freeAddress(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(fmt.Errorf("free address: %w", err))
	}
	return l.Addr().String()
}
