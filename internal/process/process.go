// Package process owns what castle knows of processes: their environment, the quoting of a command line for
// a shell, and the process table, through which it ends the leftovers of a run. A process belongs to a run
// if its environment, which children inherit, holds CASTLE_RUN with the run's id. castle cannot read another
// user's environment, and a process that has ended has none, waited for or not.
package process

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Process is one entry of the process table.
type Process struct {
	PID, Parent int
	Start       uint64 // ticks since boot, or microseconds of the clock: comparable within one boot
	Name        string
	Ended       bool // its parent has not waited for it
}

func (p Process) String() string { return fmt.Sprintf("%s (process %d)", p.Name, p.PID) }

// OfRun returns the processes of a run that also carry the other entries in their
// environment, without this process and its ancestors.
func OfRun(run string, entries ...string) ([]Process, error) {
	all, err := pids()
	if err != nil {
		return nil, err
	}
	spared := ancestry()
	var found []Process
	for _, pid := range all {
		if spared[pid] || !carries(pid, run, entries) {
			continue
		}
		if p, err := Read(pid); err == nil {
			found = append(found, p)
		}
	}
	return found, nil
}

// Only a process that hangs in the kernel needs longer than an instant to end.
const (
	endTimeout   = 15 * time.Second
	pollInterval = 10 * time.Millisecond
)

// LongestTemporary is the longest path of the system's temporary folder in which RuntimeDir lies.
const LongestTemporary = 32

// RuntimeDir is the folder for the sockets of a run's processes. It is short: the path of a socket has at
// most 107 characters (unix(7)). Its owner creates it for this user alone and removes it. A run's id that was
// read from a damaged file names no other folder.
func RuntimeDir(run string) string {
	base := os.TempDir()
	if len(base) > LongestTemporary {
		base = "/tmp"
	}
	return filepath.Join(base, "castle-"+filepath.Base(run))
}

// EndRun kills the processes that OfRun finds and returns them once all are gone. Those of a whole run leave
// its RuntimeDir, which it removes.
func EndRun(ctx context.Context, run string, entries ...string) ([]string, error) {
	if run == "" {
		return nil, errors.New("end processes: no run given")
	}
	ctx, stop := context.WithTimeoutCause(ctx, endTimeout, errors.New("still there after being killed"))
	defer stop()
	var ended []string
	for {
		alive, err := OfRun(run, entries...)
		if err == nil && len(alive) == 0 && len(entries) == 0 {
			err = os.RemoveAll(RuntimeDir(run))
		}
		if err != nil || len(alive) == 0 {
			return ended, err
		}
		for _, p := range alive {
			if !slices.Contains(ended, p.String()) {
				ended = append(ended, p.String())
			}
			if err := p.kill(run, entries); err != nil {
				return ended, err
			}
		}
		select {
		case <-ctx.Done():
			return ended, fmt.Errorf("processes %v of run %s: %w", alive, run, context.Cause(ctx))
		case <-time.After(pollInterval):
		}
	}
}

// ancestry returns this process and those that started it.
func ancestry() map[int]bool {
	all := map[int]bool{}
	for pid := os.Getpid(); pid > 0 && !all[pid]; {
		all[pid] = true
		p, _ := Read(pid) // the zero Process has no parent
		pid = p.Parent
	}
	return all
}

func carries(pid int, run string, entries []string) bool {
	block, err := environ(pid)
	if err != nil {
		return false
	}
	block = slices.Concat([]byte{0}, block, []byte{0})
	has := func(entry string) bool { return bytes.Contains(block, []byte("\x00"+entry+"\x00")) }
	return has("CASTLE_RUN="+run) && !slices.ContainsFunc(entries, func(e string) bool { return !has(e) })
}

// kill checks the environment once it holds a handle on the process: the pid may be another's by then.
func (p Process) kill(run string, entries []string) error {
	handle, err := os.FindProcess(p.PID)
	if err != nil {
		return err
	}
	if carries(p.PID, run, entries) {
		err = handle.Kill()
	}
	if errors.Is(err, os.ErrProcessDone) {
		err = nil
	}
	return errors.Join(err, handle.Release())
}

// Getenv returns a variable of an environment such as os.Environ returns it, empty
// where it is not set. Of equal names the last one counts, as in exec.Cmd.
func Getenv(environ []string, name string) string {
	for _, entry := range slices.Backward(environ) {
		if k, value, ok := strings.Cut(entry, "="); ok && k == name {
			return value
		}
	}
	return ""
}

// Quote makes one word of s for a POSIX shell.
func Quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// temporary matches castle's folders among the temporary files: RuntimeDir and TempDir.
var temporary = regexp.MustCompile(`^castle-(\d{8}T\d{6}\.\d{3}-[a-z]+-[0-9a-f]{6}|[a-z]+-\d+)$`)

// TempDir creates a private folder among the temporary files, and locks it. The caller removes it.
func TempDir(name string) (string, error) {
	dir, err := os.MkdirTemp("", "castle-"+name+"-*")
	if err == nil {
		Hold(dir)
	}
	return dir, err
}

// Hold locks a folder of castle among the temporary files until this process ends, however it ends. It
// removes the folders of this user that nobody has locked, or is about to: killed castles have left them.
func Hold(dir string) {
	_, _ = lock(dir, unix.LOCK_SH)                                        // the descriptor stays open
	all, _ := filepath.Glob(filepath.Join(filepath.Dir(dir), "castle-*")) //nolint:errcheck // none then
	for _, other := range all {
		if !temporary.MatchString(filepath.Base(other)) {
			continue
		}
		fd, err := lock(other, unix.LOCK_EX|unix.LOCK_NB)
		if err != nil {
			continue
		}
		var info unix.Stat_t
		if unix.Fstat(fd, &info) == nil && int(info.Uid) == os.Getuid() && info.Mode&0o077 == 0 &&
			time.Since(time.Unix(info.Mtim.Unix())) > time.Minute {
			_ = os.RemoveAll(other) // else the next castle tries again
		}
		_ = unix.Close(fd)
	}
}

// lock opens a folder, not through a link, and locks it. A child does not inherit the descriptor.
func lock(dir string, how int) (int, error) {
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err == nil {
		if err = unix.Flock(fd, how); err != nil {
			_ = unix.Close(fd)
		}
	}
	return fd, err
}
