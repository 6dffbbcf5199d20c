package state

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ephemeral-castle/castle/internal/process"
)

// Lock is the held cluster lock.
type Lock struct {
	// Previous is the run that held the lock and died without releasing it, or "".
	// Nothing may change before TakeOver: until then the lock file names Previous,
	// so that the next run takes over if this one dies first.
	Previous string

	dir  *Dir
	file *os.File
	run  string
	mine bool // the file names this run
}

// holder is what the lock file says of whoever holds the lock. The kernel's lock
// on the file is what counts and goes with its process; the file's content says
// who it is, and, once the lock is free, that its last holder did not end in order.
type holder struct {
	Run   string    `json:"run"`
	Host  string    `json:"host"`
	Boot  string    `json:"boot"`
	PID   int       `json:"pid"`
	Start uint64    `json:"start"` // of the process, in ticks since boot: a recycled pid is not believed
	Since time.Time `json:"since"`
}

func (h holder) alive() bool {
	if h.PID == 0 || h.Boot != process.BootID() {
		return false
	}
	p, err := process.Read(h.PID)
	return err == nil && p.Start == h.Start
}

// HeldError says that another run, which is alive, holds the lock. Only Cluster
// is set if the holder has not said yet who it is.
type HeldError struct {
	Cluster string
	Run     string
	Host    string
	PID     int
	Since   time.Time
	// Path is the lock's file where only a person can tell whether the holder is
	// alive: it is another machine's, and the file system is shared with that.
	Path string
}

func (e *HeldError) Error() string {
	if e.Run == "" {
		return fmt.Sprintf("cluster %s: locked by another castle that has just started", e.Cluster)
	}
	text := fmt.Sprintf("cluster %s: locked by run %s (process %d on %s) since %s (%s)",
		e.Cluster, e.Run, e.PID, e.Host, e.Since.Local().Format(time.DateTime), age(time.Since(e.Since)))
	if e.Path != "" {
		return text + fmt.Sprintf("\n  whether it lives cannot be told from here: if no castle and no Terraform of this cluster runs on %s any more, remove %s", e.Host, e.Path)
	}
	return text + "\n  " + e.wayOut()
}

// wayOut says how to come to one's turn.
func (e *HeldError) wayOut() string {
	kind := e.kind()
	if e.Host != hostname() {
		return fmt.Sprintf("wait until that %s has ended, or end it in order on %s: kill -INT %d", kind, e.Host, e.PID)
	}
	return fmt.Sprintf("wait until that %s has ended, or end it in order: kill -INT %d", kind, e.PID)
}

// kind is the command that the run belongs to, as its id says.
func (e *HeldError) kind() string {
	if parts := strings.Split(e.Run, "-"); len(parts) == 3 {
		return parts[1]
	}
	return "run"
}

// age is how long ago something was, as people say it.
func age(d time.Duration) string {
	count := func(n int, what string) string {
		if n == 1 {
			return "1 " + what
		}
		return fmt.Sprintf("%d %ss", n, what)
	}
	switch {
	case d < time.Minute:
		return count(max(int(d.Seconds()), 0), "second")
	case d < time.Hour:
		return count(int(d.Minutes()), "minute")
	case d < 48*time.Hour:
		return count(int(d.Hours()), "hour")
	}
	return count(int(d.Hours()/24), "day")
}

// Lock takes the cluster lock for a run, or returns a *HeldError. A dead
// holder's lock is Lock.Previous.
func (d *Dir) Lock(run string) (*Lock, error) {
	path := filepath.Join(d.path, "lock")
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	previous, err := d.acquire(f, path)
	if err == nil && previous.Run == "" {
		err = describe(f, run)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	d.locked.Store(true)
	return &Lock{Previous: previous.Run, dir: d, file: f, run: run, mine: previous.Run == ""}, nil
}

// TakeOver ends the processes that Previous has left, since two runs must never
// change a cluster at once, and puts this run in its place. The notice is empty
// if there was no previous run.
func (l *Lock) TakeOver(ctx context.Context) (notice string, err error) {
	if l.mine {
		return "", nil
	}
	ended, err := process.EndRun(ctx, l.Previous)
	if err != nil {
		return "", fmt.Errorf("end the processes of run %s: %w", l.Previous, err)
	}
	if err := describe(l.file, l.run); err != nil {
		return "", err
	}
	l.mine = true
	notice = fmt.Sprintf("run %s died without finishing; taking over", l.Previous)
	if len(ended) > 0 {
		notice += fmt.Sprintf(", ended %d of its processes", len(ended))
	}
	return notice, nil
}

// Holder says which live run holds the lock; nil if none does, or if that
// cannot be told.
func (d *Dir) Holder() *HeldError {
	f, err := os.Open(filepath.Join(d.path, "lock"))
	if err != nil {
		return nil
	}
	defer f.Close()
	h := readHolder(f)
	if !h.alive() {
		return nil
	}
	return d.heldBy(h)
}

// acquire locks f and returns what its last holder left in it.
func (d *Dir) acquire(f *os.File, path string) (holder, error) {
	if err := f.Chmod(0o600); err != nil {
		return holder{}, err
	}
	err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	held := errors.Is(err, unix.EWOULDBLOCK)
	if err != nil && !held {
		return holder{}, fmt.Errorf("%s: %w", path, err)
	}
	h := readHolder(f)
	switch {
	case h.alive(): // without the kernel's lock too: not every network file system has one
		return holder{}, d.heldBy(h)
	case held && h.Run != "" && h.Host != hostname():
		return holder{}, d.heldBy(h)
	case held:
		return holder{}, &HeldError{Cluster: d.cluster}
	case h.Run != "" && h.Host != hostname() && d.shared(f):
		e := d.heldBy(h)
		e.Path = path
		return holder{}, e
	}
	// Had somebody deleted the file meanwhile, this lock would keep nobody out.
	mine, err := f.Stat()
	if err != nil {
		return holder{}, err
	}
	if there, err := os.Stat(path); err != nil || !os.SameFile(mine, there) {
		return holder{}, &HeldError{Cluster: d.cluster}
	}
	return h, nil
}

func (d *Dir) heldBy(h holder) *HeldError {
	return &HeldError{Cluster: d.cluster, Run: h.Run, Host: h.Host, PID: h.PID, Since: h.Since}
}

// readHolder returns the zero holder for a file that is empty or torn: its
// writer ended in order, or died before it had begun anything.
func readHolder(f *os.File) holder {
	var h holder
	data, err := io.ReadAll(io.NewSectionReader(f, 0, 1<<16))
	if err != nil || json.Unmarshal(data, &h) != nil {
		return holder{}
	}
	return h
}

func describe(f *os.File, run string) error {
	self, err := process.Read(os.Getpid())
	if err != nil {
		return err
	}
	data, err := json.Marshal(holder{
		Run: run, Host: hostname(), Boot: process.BootID(),
		PID: os.Getpid(), Start: self.Start, Since: time.Now().UTC(),
	})
	if err != nil {
		return err
	}
	if err := f.Truncate(0); err != nil {
		return err
	}
	if _, err := f.WriteAt(append(data, '\n'), 0); err != nil {
		return err
	}
	return f.Sync()
}

// Unlock releases the lock and notes that its run ended in order. The file
// stays: deleting it could let two others in, each with a lock of its own.
func (l *Lock) Unlock() error {
	l.dir.locked.Store(false)
	if !l.mine {
		return l.file.Close()
	}
	return errors.Join(l.file.Truncate(0), l.file.Sync(), l.file.Close())
}

func hostname() string {
	name, err := os.Hostname()
	if err != nil {
		return "unknown"
	}
	return name
}
