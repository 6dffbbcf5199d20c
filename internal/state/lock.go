package state

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/ephemeral-castle/castle/internal/atomicfile"
	"github.com/ephemeral-castle/castle/internal/ownfile"
	"github.com/ephemeral-castle/castle/internal/process"
)

// Lock is the held cluster lock: the kernel's lock on a file, which also names the holder. The kernel
// releases its lock when the holder dies, and no child inherits it: Go opens files close-on-exec. So on a
// disk of this machine a free lock has no holder, whatever the file says. On a network file system the kernel
// may not know of the locks of other machines, or may have lost this machine's. There the holder counts that
// the file names, if it is alive or castle cannot tell.
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

// holder is the lock file's content: who holds the lock, or, once it is free, that its last holder died.
type holder struct {
	Run   string    `json:"run"`
	Host  string    `json:"host"`
	Boot  string    `json:"boot"`
	PID   int       `json:"pid"`
	Start uint64    `json:"start"` // of the process, in ticks since boot: pids are recycled
	Since time.Time `json:"since"`
}

// alive reports whether the holder is alive. A process that merely has its id does not have the lock file
// open. unknown is the answer where castle may not see the files of a process, such as another user's.
func (h holder) alive(lock *os.File, unknown bool) bool {
	if h.PID == 0 || h.Boot != process.BootID() {
		return false
	}
	p, err := process.Read(h.PID)
	if err != nil || p.Ended || p.Start != h.Start {
		return false
	}
	open, err := p.HasOpen(lock)
	return open || err != nil && unknown
}

func (h holder) held(cluster string) *HeldError {
	return &HeldError{Cluster: cluster, Run: h.Run, Host: h.Host, PID: h.PID, Since: h.Since}
}

// HeldError reports that another run, which is alive, holds the lock. Only Cluster
// is set if the holder has not written its name yet.
type HeldError struct {
	Cluster, Run, Host string

	PID   int
	Since time.Time
	// Path is the lock file if only a person can check whether the holder is alive: it runs on another
	// machine that shares the file system.
	Path string
	// Store is the URL of the store whose log holds the lock; empty if the state directory does. Seen is when
	// the holder gave its last sign of life there, by its clock.
	Store string
	Seen  time.Time
}

func (e *HeldError) Error() string {
	if e.Run == "" {
		return fmt.Sprintf("cluster %s: locked by another castle that has just started", e.Cluster)
	}
	text := fmt.Sprintf("cluster %s: locked by run %s (process %d on %s) since %s (%s)\n  ",
		e.Cluster, e.Run, e.PID, e.Host, e.Since.Local().Format(time.DateTime), age(e.Since))
	if e.Store != "" {
		text += fmt.Sprintf("its last sign of life in %s is %s old: ", e.Store, age(e.Seen))
	}
	if e.Path != "" {
		text += "castle cannot check from here whether it is alive: "
	}
	text += fmt.Sprintf("wait until that %s ends, or interrupt it", RunKind(e.Run))
	if e.Host != hostname() {
		text += " on " + e.Host
	}
	text += fmt.Sprintf(": kill -INT %d", e.PID)
	if e.Path != "" {
		text += fmt.Sprintf("\n  if neither castle nor Terraform runs for this cluster on %s any more, "+
			"remove %s", e.Host, e.Path)
	}
	if e.Store != "" {
		text += fmt.Sprintf("\n  if neither castle nor Terraform runs for this cluster on %s any more: "+
			"castle unlock %s", e.Host, e.Cluster)
	}
	return text
}

func age(at time.Time) string { return duration.HumanDuration(max(0, time.Since(at))) }

// Lock takes the cluster lock for a run, or returns a *HeldError. A dead holder's lock is Lock.Previous.
func (d *Dir) Lock(run string) (*Lock, error) {
	path := filepath.Join(d.path, "lock")
	f, err := ownfile.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if errors.Is(err, unix.EISDIR) {
		err = fmt.Errorf("%s is a folder; castle keeps a file there\n  move the folder away", path)
	}
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

// TakeOver ends the processes that Previous has left, since two runs must never change a cluster at once, and
// puts this run in its place. It also removes the temporary files of killed runs, and stages that those did
// not finish to remove. The notice is empty if there was no previous run.
func (l *Lock) TakeOver(ctx context.Context) (notice string, err error) {
	if !l.mine {
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
	}
	return notice, errors.Join(atomicfile.Sweep(l.dir.path), removeAside(l.dir))
}

// Holder returns the live run that holds the lock; nil if there is none, or if that is unknown.
func (d *Dir) Holder() *HeldError {
	f, err := ownfile.Open(filepath.Join(d.path, "lock"))
	if err != nil {
		return nil
	}
	defer f.Close()
	h := readHolder(f)
	if !h.alive(f, true) {
		return nil
	}
	return h.held(d.cluster)
}

// acquire locks f and returns the record of its last holder.
func (d *Dir) acquire(f *os.File, path string) (holder, error) {
	if err := f.Chmod(0o600); err != nil {
		return holder{}, err
	}
	err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	locked := errors.Is(err, unix.EWOULDBLOCK)
	if err != nil && !locked {
		return holder{}, fmt.Errorf("%s: %w", path, err)
	}
	h := readHolder(f)
	elsewhere, shared := h.Run != "" && h.Host != hostname(), d.shared(f)
	switch {
	case h.alive(f, locked || shared):
		return holder{}, h.held(d.cluster)
	case elsewhere && (locked || shared):
		e := h.held(d.cluster)
		if shared {
			e.Path = path
		}
		return holder{}, e
	case locked:
		return holder{}, &HeldError{Cluster: d.cluster}
	}
	// A lock on a file that was deleted meanwhile excludes no other run.
	mine, err := f.Stat()
	if err != nil {
		return holder{}, err
	}
	if there, err := os.Lstat(path); err != nil || !os.SameFile(mine, there) {
		return holder{}, &HeldError{Cluster: d.cluster}
	}
	return h, nil
}

// readHolder returns the zero holder for a file that is empty or torn: its writer
// ended normally, or died before it changed anything.
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

// Unlock releases the lock and records that its run ended normally. The file stays:
// deleting it could let two runs in, each with a lock of its own.
func (l *Lock) Unlock() error {
	l.dir.locked.Store(false)
	var err error
	if l.mine {
		err = errors.Join(l.file.Truncate(0), l.file.Sync())
	}
	return errors.Join(err, unix.Flock(int(l.file.Fd()), unix.LOCK_UN), l.file.Close()) // a child may have it
}

func hostname() string {
	name, err := os.Hostname()
	if err != nil {
		return "unknown"
	}
	return name
}
