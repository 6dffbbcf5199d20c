package state

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/ephemeral-castle/castle/internal/atomicfile"
)

const (
	snapshotTime = "20060102T150405.000000000"
	stateEnd     = ".tfstate"
)

// Copy is a state that lies beside the stage's state: a snapshot, or errored.tfstate.
type Copy struct {
	Name   string // a snapshot's is the time it was taken, and unique
	Taken  time.Time
	State  *State // nil if it cannot be read
	Reason error  // why it cannot be read

	path    string
	data    []byte
	errored bool
}

// Path returns the path of the copy's file.
func (c *Copy) Path() string { return c.path }

func (c *Copy) taken() string { return c.Taken.Local().Format(time.DateTime) }

func readCopy(path string) (*Copy, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	c := &Copy{Name: strings.TrimSuffix(info.Name(), stateEnd), Taken: info.ModTime(), path: path, data: data}
	if taken, err := time.Parse(snapshotTime, c.Name); err == nil {
		c.Taken = taken
	}
	c.State, c.Reason = parse(data)
	return c, nil
}

// snapshots is the folder of a stage's snapshots.
type snapshots struct {
	dir  string
	keep int // how many; all if zero
}

func (s *Stage) snapshots() snapshots {
	return snapshots{dir: filepath.Join(s.Dir(), "snapshots"), keep: s.dir.snapshots}
}

// paths returns the paths of all snapshots, the newest last.
func (s snapshots) paths() ([]string, error) {
	names, err := fs.Glob(os.DirFS(s.dir), "*"+stateEnd) // sorted, and they begin with the time
	for i, name := range names {
		names[i] = filepath.Join(s.dir, name)
	}
	return names, err
}

// list returns all snapshots, the newest first, those that cannot be read too.
func (s snapshots) list() ([]*Copy, error) {
	paths, err := s.paths()
	if err != nil {
		return nil, err
	}
	var copies []*Copy
	for _, path := range slices.Backward(paths) {
		c, err := readCopy(path)
		if errors.Is(err, fs.ErrNotExist) { // a run has just removed it
			continue
		}
		if err != nil {
			return nil, err
		}
		copies = append(copies, c)
	}
	return copies, nil
}

// newestGood returns the newest snapshot that can be read, or nil.
func (s snapshots) newestGood() (*Copy, error) {
	paths, err := s.paths()
	if err != nil {
		return nil, err
	}
	for _, path := range slices.Backward(paths) {
		c, err := readCopy(path)
		if err != nil || c.State != nil {
			return c, err
		}
	}
	return nil, nil
}

// add keeps data unless the newest snapshot is the same, and removes the oldest
// snapshots beyond keep.
func (s snapshots) add(data []byte) error {
	paths, err := s.paths()
	if err != nil {
		return err
	}
	if len(paths) > 0 {
		newest, err := os.ReadFile(paths[len(paths)-1])
		if err == nil && bytes.Equal(newest, data) {
			return nil
		}
	}
	if err := atomicfile.MkdirPrivate(s.dir); err != nil {
		return err
	}
	// A copy, never a link: Terraform overwrites its state in place.
	name := time.Now().UTC().Format(snapshotTime) + stateEnd
	if err := atomicfile.Write(filepath.Join(s.dir, name), data); err != nil {
		return err
	}
	for ; s.keep > 0 && len(paths) >= s.keep; paths = paths[1:] {
		if err := os.Remove(paths[0]); err != nil {
			return err
		}
	}
	return nil
}
