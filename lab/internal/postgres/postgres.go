// Package postgres runs the lab's real PostgreSQL and pgBackRest, Debian's packages. It is the database
// that an operator would run inside the cluster, for a Vault that creates users in it and for castle,
// which follows its backups. Its data lies in a folder and disappears with the folder.
//
// PostgreSQL refuses to run as root, and the lab is root inside its namespaces. There, both programs
// run in a user namespace of their own, which maps the same user to the account of Debian's package.
package postgres

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// account is the user of Debian's package. initdb and pgBackRest look up who they are.
const account = "postgres"

// Options configure a PostgreSQL server.
type Options struct {
	Dir      string // private; the data that an earlier server left there is served again
	Place    netip.AddrPort
	Database string // empty: none but PostgreSQL's own
	User     string // who may do everything
	Password string // that user's, in new data
	// Certificate and Key have it speak TLS, and nothing else; PEM.
	Certificate, Key []byte
	// ArchiveCommand is called with each finished segment of the WAL; empty: there is no archive.
	ArchiveCommand string
	Environ        []string // for ArchiveCommand and PostgreSQL's restore_command
	Log            io.Writer
}

// Server is a PostgreSQL that runs.
type Server struct {
	options Options
	process *exec.Cmd
	done    chan struct{}
	last    *tail // of its output
}

// dataOf is PostgreSQL's data directory in the directory of a server.
func dataOf(dir string) string { return filepath.Join(dir, "data") }

// HasData reports whether a directory has the data of a database.
func HasData(dir string) bool {
	_, err := os.Stat(filepath.Join(dataOf(dir), "PG_VERSION"))
	return err == nil
}

// Start serves a database, and makes it if there is none in the directory; it lasts until ctx ends or Close
// is called.
func Start(ctx context.Context, o Options) (*Server, error) {
	bin, err := programs()
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return nil, err
	}
	if !HasData(o.Dir) {
		if err := o.create(ctx, bin); err != nil {
			return nil, err
		}
	}
	who, args := "host", []string{"-h", o.Place.Addr().String()}
	if o.Certificate != nil {
		who, args = "hostssl", append(args, "-c", "ssl=on")
		if err := errors.Join(os.WriteFile(filepath.Join(dataOf(o.Dir), "server.crt"), o.Certificate, 0o600),
			os.WriteFile(filepath.Join(dataOf(o.Dir), "server.key"), o.Key, 0o600)); err != nil {
			return nil, err
		}
	}
	if o.ArchiveCommand != "" {
		args = append(args, "-c", "archive_mode=on", "-c", "archive_command="+o.ArchiveCommand)
	}
	return o.run(ctx, bin, who+" all all all scram-sha-256\n", args...)
}

// create makes the data of a new database.
func (o Options) create(ctx context.Context, bin string) error {
	password, fresh := filepath.Join(o.Dir, "password"), filepath.Join(o.Dir, "new")
	if err := errors.Join(os.RemoveAll(fresh), os.RemoveAll(dataOf(o.Dir)),
		os.WriteFile(password, []byte(o.Password), 0o600)); err != nil {
		return err
	}
	made := o.command(ctx, filepath.Join(bin, "initdb"), "--pgdata", fresh, "--username", o.User,
		"--pwfile", password,
		"--auth-local", "trust", "--auth-host", "scram-sha-256", "--no-sync", "--encoding", "UTF8",
		"--locale", "C")
	if err := errors.Join(finish(made), os.Remove(password)); err != nil {
		return fmt.Errorf("postgresql: initdb: %w", err)
	}
	if o.Database != "" {
		single := o.command(ctx, filepath.Join(bin, "postgres"), "--single", "-D", fresh, "-c", "fsync=off",
			"postgres")
		single.Stdin = strings.NewReader("CREATE DATABASE " + Quoted(o.Database) + "\n")
		if err := finish(single); err != nil {
			return fmt.Errorf("postgresql: database %s: %w", o.Database, err)
		}
	}
	return os.Rename(fresh, dataOf(o.Dir)) // data that a killed initdb left is not served
}

// run starts the server on its data, and returns when it takes connections.
func (o Options) run(ctx context.Context, bin, access string, args ...string) (*Server, error) {
	access = "local all " + o.User + " trust\n" + access
	if err := os.WriteFile(filepath.Join(dataOf(o.Dir), "pg_hba.conf"), []byte(access), 0o600); err != nil {
		return nil, err
	}
	// A backup waits for a checkpoint, which PostgreSQL would spread over minutes.
	args = append(args, "-D", dataOf(o.Dir), "-k", socket, "-p", fmt.Sprint(o.Place.Port()),
		"-c", "fsync=off", "-c", "checkpoint_completion_target=0")
	s := &Server{options: o, done: make(chan struct{}), last: &tail{to: o.Log},
		process: o.command(ctx, filepath.Join(bin, "postgres"), args...)}
	s.process.Stdout, s.process.Stderr = s.last, s.last
	s.process.SysProcAttr.Pdeathsig = syscall.SIGQUIT // it ends with the lab, whatever happens to that
	if err := s.start(); err != nil {
		return nil, err
	}
	if err := s.answers(ctx, o.command(ctx, filepath.Join(bin, "pg_isready"), "-q", "-h", socket, "-p",
		fmt.Sprint(o.Place.Port()), "-U", o.User, "-d", "postgres")); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// socket is the directory of the server's socket, for it and for clients that run in its data directory. It
// is short enough for the kernel, wherever that is. The server's own user needs no password there.
const socket = "/proc/self/cwd"

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
		once.Env, once.Dir = ask.Env, dataOf(s.options.Dir)
		if once.Run() == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-s.done:
			return fmt.Errorf("postgresql: the process ended before it was ready: %s", s.last.text())
		case <-again.C:
		}
	}
}

// Close ends PostgreSQL at once, as a power cut does: the next start recovers from the WAL.
func (s *Server) Close() error { return s.end(syscall.SIGQUIT) }

// patience is how long a shutdown may take, with the archive of the last WAL.
const patience = 10 * time.Second

// Shutdown ends PostgreSQL as an operator does that stops it: it archives all of its WAL, if it can do so
// soon.
func (s *Server) Shutdown() error {
	timer := time.AfterFunc(patience, func() { s.Close() }) //nolint:errcheck // end reports it
	defer timer.Stop()
	return s.end(syscall.SIGINT)
}

func (s *Server) end(with syscall.Signal) error {
	if err := s.process.Process.Signal(with); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	<-s.done
	return nil
}

// Done is closed when PostgreSQL has ended.
func (s *Server) Done() <-chan struct{} { return s.done }

// Last is the end of PostgreSQL's output.
func (s *Server) Last() string { return s.last.text() }

// Query runs statements as the server's own user, who needs no password here.
func (s *Server) Query(ctx context.Context, database, statements string) (string, error) {
	bin, err := programs()
	if err != nil {
		return "", err
	}
	c := s.options.command(ctx, filepath.Join(bin, "psql"), "-h", socket, "-p",
		fmt.Sprint(s.options.Place.Port()), "-U", s.options.User, "-d", database)
	c.Dir = dataOf(s.options.Dir)
	return query(c, statements)
}

// command runs one of PostgreSQL's programs as a user other than root.
func (o Options) command(ctx context.Context, program string, args ...string) *exec.Cmd {
	c := exec.CommandContext(ctx, program, args...)
	c.Env = append([]string{"HOME=" + o.Dir, "TMPDIR=" + o.Dir, "LC_ALL=C",
		"PATH=" + filepath.Dir(program) + ":/usr/bin:/bin"}, o.Environ...)
	c.Dir, c.Stdout, c.Stderr = o.Dir, o.Log, o.Log
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a Ctrl-C is not meant for it
	if os.Geteuid() == 0 {
		uid, gid := identity()
		c.SysProcAttr.Cloneflags = syscall.CLONE_NEWUSER
		c.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: uid, HostID: 0, Size: 1}}
		c.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: gid, HostID: os.Getegid(), Size: 1}}
	}
	return c
}

// identity is the account of Debian's package. Without one, initdb names the id that it does not know.
func identity() (uid, gid int) {
	uid, gid = 65534, 65534
	if u, err := user.Lookup(account); err == nil {
		uid, _ = strconv.Atoi(u.Uid) //nolint:errcheck // Linux has numbers
		gid, _ = strconv.Atoi(u.Gid) //nolint:errcheck // likewise
	}
	return uid, gid
}

// finish runs a program that ends by itself. Its error has the last lines of its output.
func finish(c *exec.Cmd) error {
	last := &tail{to: c.Stderr}
	c.Stdout, c.Stderr = last, last
	if err := c.Run(); err != nil {
		return fmt.Errorf("%w: %s", err, last.text())
	}
	return nil
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
func Query(ctx context.Context, place netip.AddrPort, database, name, password,
	statements string) (string, error) {
	bin, err := programs()
	if err != nil {
		return "", err
	}
	c := exec.CommandContext(ctx, filepath.Join(bin, "psql"), "-h", place.Addr().String(), "-p",
		fmt.Sprint(place.Port()), "-U", name, "-d", database)
	c.Env = []string{"PGPASSWORD=" + password}
	return query(c, statements)
}

func query(c *exec.Cmd, statements string) (string, error) {
	c.Args = append(c.Args, "--no-psqlrc", "-At", "-v", "ON_ERROR_STOP=on")
	c.Stdin, c.Stdout, c.Stderr = strings.NewReader(statements), nil, nil
	out, err := c.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%w: %s", err, strings.TrimSpace(string(out)))
	}
	return strings.TrimSpace(string(out)), nil
}
