// Package postgres runs the lab's real PostgreSQL, Debian's package. It is the database that an
// operator would run inside the cluster, for a Vault that creates users in it. Its data lies in a
// folder and disappears with the folder.
//
// PostgreSQL refuses to run as root, and the lab is root inside its namespaces. There, PostgreSQL
// runs in a user namespace of its own, which maps the same user to another id.
package postgres

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// unprivileged is the user id of PostgreSQL where the lab is root.
const unprivileged = 1000

// Options configure a PostgreSQL server.
type Options struct {
	Dir      string // new and private
	Place    netip.AddrPort
	Database string // empty: none but PostgreSQL's own
	User     string // who may do everything
	Password string // that user's
	// Certificate and Key have it speak TLS, and nothing else; PEM.
	Certificate, Key []byte
	Log              io.Writer
}

// Server is a PostgreSQL that runs.
type Server struct {
	process *exec.Cmd
	done    chan struct{}
}

// Start makes a database and serves it; it lasts until ctx ends or Close is called.
func Start(ctx context.Context, o Options) (*Server, error) {
	bin, err := programs()
	if err != nil {
		return nil, err
	}
	if err := os.Mkdir(o.Dir, 0o700); err != nil {
		return nil, err
	}
	data, password := filepath.Join(o.Dir, "data"), filepath.Join(o.Dir, "password")
	if err := os.WriteFile(password, []byte(o.Password), 0o600); err != nil {
		return nil, err
	}
	made := command(ctx, o, filepath.Join(bin, "initdb"), "--pgdata", data, "--username", o.User,
		"--pwfile", password,
		"--auth-local", "trust", "--auth-host", "scram-sha-256", "--no-sync", "--encoding", "UTF8",
		"--locale", "C")
	if err := made.Run(); err != nil {
		return nil, fmt.Errorf("postgresql: initdb: %w", err)
	}
	who := "host"
	if o.Certificate != nil {
		who = "hostssl"
	}
	if err := errors.Join(os.Remove(password), os.WriteFile(filepath.Join(data, "pg_hba.conf"),
		[]byte(who+" all all all scram-sha-256\n"), 0o600)); err != nil {
		return nil, err
	}
	if o.Database != "" {
		single := command(ctx, o, filepath.Join(bin, "postgres"), "--single", "-D", data, "-c", "fsync=off",
			"postgres")
		single.Stdin = strings.NewReader("CREATE DATABASE " + Quoted(o.Database) + "\n")
		if err := single.Run(); err != nil {
			return nil, fmt.Errorf("postgresql: database %s: %w", o.Database, err)
		}
	}
	// No socket: the kernel would limit how long the folder's name may be.
	args := []string{"-D", data, "-k", "", "-h", o.Place.Addr().String(), "-p", fmt.Sprint(o.Place.Port()),
		"-c", "fsync=off"}
	if o.Certificate != nil {
		if err := errors.Join(os.WriteFile(filepath.Join(data, "server.crt"), o.Certificate, 0o600),
			os.WriteFile(filepath.Join(data, "server.key"), o.Key, 0o600)); err != nil {
			return nil, err
		}
		args = append(args, "-c", "ssl=on")
	}
	s := &Server{done: make(chan struct{}), process: command(ctx, o, filepath.Join(bin, "postgres"), args...)}
	s.process.SysProcAttr.Pdeathsig = syscall.SIGQUIT // it ends with the lab, whatever happens to that
	if err := s.start(); err != nil {
		return nil, err
	}
	if err := s.answers(ctx, command(ctx, o, filepath.Join(bin, "pg_isready"), "-q", "-h",
		o.Place.Addr().String(), "-p", fmt.Sprint(o.Place.Port()))); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// start runs the server from a thread that lasts as long as it: the kernel ends a
// child with the thread that made it.
func (s *Server) start() error {
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		err := s.process.Start()
		started <- err
		if err == nil {
			s.process.Wait() //nolint:errcheck // how it ended is nobody's concern
			close(s.done)
		}
	}()
	return <-started
}

// answers waits until PostgreSQL takes connections.
func (s *Server) answers(ctx context.Context, ask *exec.Cmd) error {
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	for {
		once := exec.CommandContext(ctx, ask.Path, ask.Args[1:]...)
		once.Env = ask.Env
		if once.Run() == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-s.done:
			return errors.New("postgresql: the process ended before it was ready")
		case <-again.C:
		}
	}
}

// Close ends PostgreSQL at once; it need not be whole afterwards.
func (s *Server) Close() error {
	if err := s.process.Process.Signal(syscall.SIGQUIT); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	<-s.done
	return nil
}

// command runs one of PostgreSQL's programs as a user other than root.
func command(ctx context.Context, o Options, program string, args ...string) *exec.Cmd {
	c := exec.CommandContext(ctx, program, args...)
	c.Env = []string{"HOME=" + o.Dir, "TMPDIR=" + o.Dir, "LC_ALL=C", "PATH=" + filepath.Dir(program)}
	c.Dir, c.Stdout, c.Stderr = o.Dir, o.Log, o.Log
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a Ctrl-C is not meant for it
	if os.Geteuid() == 0 {
		c.SysProcAttr.Cloneflags = syscall.CLONE_NEWUSER
		c.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: unprivileged, HostID: 0, Size: 1}}
		c.SysProcAttr.GidMappings = []syscall.SysProcIDMap{
			{ContainerID: unprivileged, HostID: os.Getegid(), Size: 1},
		}
	}
	return c
}

// programs is where Debian keeps the newest release's.
func programs() (string, error) {
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin/postgres")
	if err != nil || len(found) == 0 {
		return "",
			errors.New("there is no PostgreSQL\ncastle: hint: run `make vault` in a clone of castle, or " +
				"`apt-get install postgresql`")
	}
	return filepath.Dir(found[len(found)-1]), nil
}

// Quoted is a name as SQL has it.
func Quoted(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }

// Literal is a text as SQL has it.
func Literal(text string) string { return "'" + strings.ReplaceAll(text, "'", "''") + "'" }

// Release is the major version of the lab's PostgreSQL; 0 if there is none.
func Release() int {
	bin, err := programs()
	if err != nil {
		return 0
	}
	release, err := strconv.Atoi(filepath.Base(filepath.Dir(bin)))
	if err != nil {
		return 0
	}
	return release
}

// Query runs statements in a database as a user with a password. psql reads the text, and stops at
// the first statement that fails unless the text sets ON_ERROR_STOP otherwise.
func Query(ctx context.Context, place netip.AddrPort, database, user, password,
	statements string) (string, error) {
	bin, err := programs()
	if err != nil {
		return "", err
	}
	c := exec.CommandContext(ctx, filepath.Join(bin, "psql"), "-h", place.Addr().String(), "-p",
		fmt.Sprint(place.Port()),
		"-U", user, "-d", database, "--no-psqlrc", "-At", "-v", "ON_ERROR_STOP=on")
	c.Env, c.Stdin = []string{"PGPASSWORD=" + password}, strings.NewReader(statements)
	out, err := c.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%w: %s", err, strings.TrimSpace(string(out)))
	}
	return strings.TrimSpace(string(out)), nil
}
