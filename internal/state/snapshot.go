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

// paths returns the paths of all snapshots, the newest last.
func (c Copies) paths() ([]string, error) {
	dir := filepath.Join(c.stage.Dir(), "snapshots")
	names, err := fs.Glob(os.DirFS(dir), "*"+stateEnd) // sorted, and they begin with the time
	for i, name := range names {
		names[i] = filepath.Join(dir, name)
	}
	return names, err
}

// Snapshots returns the snapshots, the newest first, those that cannot be read too.
func (c Copies) Snapshots() ([]*Copy, error) {
	paths, err := c.paths()
	if err != nil {
		return nil, err
	}
	var copies []*Copy
	for _, path := range slices.Backward(paths) {
		one, err := readCopy(path)
		if errors.Is(err, fs.ErrNotExist) { // a run has just removed it
			continue
		}
		if err != nil {
			return nil, err
		}
		copies = append(copies, one)
	}
	return copies, nil
}

// newestGood returns the newest snapshot that can be read, or nil.
func (c Copies) newestGood() (*Copy, error) {
	all, err := c.Snapshots()
	if i := slices.IndexFunc(all, func(one *Copy) bool { return one.State != nil }); i >= 0 {
		return all[i], nil
	}
	return nil, err
}

// snapshot keeps a copy of the state unless the newest snapshot is the same, and removes the oldest
// snapshots beyond Dir.KeepSnapshots. It returns the copy's path, or "" if there is no state yet.
func (c Copies) snapshot() (path string, err error) {
	if st, err := c.stage.read(); err != nil || !st.Exists {
		return "", err
	}
	data, err := os.ReadFile(c.stage.StatePath())
	if err != nil {
		return "", err
	}
	paths, err := c.paths()
	if err != nil {
		return "", err
	}
	if len(paths) > 0 {
		path = paths[len(paths)-1]
		if newest, err := os.ReadFile(path); err == nil && bytes.Equal(newest, data) {
			return path, nil
		}
	}
	// A copy, never a link: Terraform overwrites its state in place.
	path = filepath.Join(c.stage.Dir(), "snapshots", time.Now().UTC().Format(snapshotTime)+stateEnd)
	if err := atomicfile.MkdirPrivate(filepath.Dir(path)); err != nil {
		return "", err
	}
	if err := atomicfile.Write(path, data); err != nil {
		return "", err
	}
	for keep := c.stage.dir.snapshots; keep > 0 && len(paths) >= keep; paths = paths[1:] {
		if err := os.Remove(paths[0]); err != nil {
			return "", err
		}
	}
	return path, nil
}
