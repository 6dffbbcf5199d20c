package postgres

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Backups is pgBackRest for one database: a configuration, and the commands that follow it.
type Backups struct {
	Database Options // its directory, user, port and log
	Name     string  // of this configuration: one database may archive to one place and come from another
	Stanza   string
}

// mounted is where PGO's Pods have the user's part of the configuration.
const mounted = "/etc/pgbackrest/conf.d"

func (b Backups) path(names ...string) string {
	return filepath.Join(append([]string{b.Database.Dir, "pgbackrest", b.Name}, names...)...)
}

// Configure writes the configuration: global options, and the files that PGO mounts beside them. They may
// hold keys, so only their owner reads them, and pgBackRest finds them without an argument.
func (b Backups) Configure(global map[string]string, files map[string][]byte) error {
	options := map[string]string{"archive-async": "y", "spool-path": b.path("spool"),
		"log-path": b.path("log"), "lock-path": b.path("lock")}
	maps.Copy(options, global)
	var s strings.Builder
	s.WriteString("[global]\n")
	for _, name := range slices.Sorted(maps.Keys(options)) {
		fmt.Fprintf(&s, "%s=%s\n", name, strings.ReplaceAll(options[name], mounted, b.path("conf.d")))
	}
	fmt.Fprintf(&s, "\n[%s]\npg1-path=%s\npg1-port=%d\npg1-socket-path=%s\n", b.Stanza,
		dataOf(b.Database.Dir), b.Database.Place.Port(), socket)
	for _, dir := range []string{"conf.d", "spool", "log", "lock"} {
		if err := os.MkdirAll(b.path(dir), 0o700); err != nil {
			return err
		}
	}
	there, err := os.ReadDir(b.path("conf.d"))
	for _, entry := range there {
		if _, wanted := files[entry.Name()]; !wanted {
			err = errors.Join(err, os.Remove(b.path("conf.d", entry.Name())))
		}
	}
	for name, content := range files {
		err = errors.Join(err, replace(b.path("conf.d", name), content))
	}
	return errors.Join(err, replace(b.path("pgbackrest.conf"), []byte(s.String())))
}

// replace writes a file that another program may be about to read.
func replace(path string, content []byte) error {
	if is, err := os.ReadFile(path); err == nil && bytes.Equal(is, content) {
		return nil
	}
	if err := os.WriteFile(path+".new", content, 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// Environ leads pgBackRest to its configuration, and to the authorities that this process trusts.
func (b Backups) Environ() []string {
	return []string{"PGBACKREST_CONFIG=" + b.path("pgbackrest.conf"),
		"PGBACKREST_CONFIG_INCLUDE_PATH=" + b.path("conf.d"), "SSL_CERT_FILE=" + os.Getenv("SSL_CERT_FILE")}
}

// ArchiveCommand is PostgreSQL's archive_command.
func (b Backups) ArchiveCommand() string {
	return "pgbackrest --stanza=" + b.Stanza + ` archive-push "%p"`
}

// Run runs a command of pgBackRest and returns its output. A shell reads the options, as in PGO's Pods. They
// are others than that of the database, so the locks are apart, and no backup blocks the archive.
func (b Backups) Run(ctx context.Context, command string, options ...string) (string, error) {
	return b.run(ctx, append(b.Environ(), "PGBACKREST_LOCK_PATH="+b.path("host")), command, options...)
}

func (b Backups) run(ctx context.Context, environ []string, command string,
	options ...string) (string, error) {
	if _, err := os.Stat("/usr/bin/pgbackrest"); err != nil {
		return "", errors.New("there is no pgBackRest\ncastle: hint: run `make s3` in a clone of castle, " +
			"or `apt-get install pgbackrest`")
	}
	o := b.Database
	o.Environ = environ
	c := o.command(ctx, "/bin/sh", "-c", strings.Join(append([]string{"exec pgbackrest", command,
		"--stanza=" + b.Stanza}, options...), " "))
	var out bytes.Buffer
	last := &tail{to: o.Log}
	c.Dir, c.Stdout, c.Stderr = dataOf(o.Dir), &out, last // where the socket is found
	if err := c.Run(); err != nil {
		return "", fmt.Errorf("pgbackrest %s: %w: %s", command, err, last.text())
	}
	return out.String(), nil
}

// Restore makes the data from a backup and replays its WAL, as PGO's Job does: with the options of the user,
// and without an archive. The server that starts next finds a database that is whole.
func (b Backups) Restore(ctx context.Context, options ...string) error {
	bin, err := programs()
	if err != nil {
		return err
	}
	data := dataOf(b.Database.Dir)
	if err := os.MkdirAll(data, 0o700); err != nil {
		return err
	}
	stale := filepath.Join(data, "postmaster.pid")
	if err := os.Remove(stale); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if _, err := b.Run(ctx, "restore", append(options, "--delta")...); err != nil {
		return err
	}
	o := b.Database
	o.Environ = b.Environ()
	s, err := o.run(ctx, bin, "", "-h", "", "-c", "archive_mode=on", "-c", "archive_command=")
	if err != nil {
		return err
	}
	return errors.Join(s.recovers(ctx), s.Shutdown())
}

// recovers waits until the server has replayed the WAL and takes writes.
func (s *Server) recovers(ctx context.Context) error {
	again := time.NewTicker(100 * time.Millisecond)
	defer again.Stop()
	for {
		if out, err := s.Query(ctx, "postgres", "SELECT pg_is_in_recovery()"); err == nil && out == "f" {
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-s.done:
			return fmt.Errorf("postgresql: the process ended while it recovered: %s", s.Last())
		case <-again.C:
		}
	}
}

// Remove deletes a file of the repository, by its path there.
func (b Backups) Remove(ctx context.Context, path string) error {
	_, err := b.Run(ctx, "repo-rm", path)
	return err
}

// Stop ends what archives in the background, after the server has ended.
func (b Backups) Stop(ctx context.Context) error {
	_, err := b.run(ctx, b.Environ(), "stop", "--force")
	return errors.Join(err, os.Remove(b.path("lock", b.Stanza+".stop")))
}
