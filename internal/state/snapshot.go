package state

import (
	"bytes"
	"cmp"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/ephemeral-castle/castle/internal/atomicfile"
	"github.com/ephemeral-castle/castle/internal/ownfile"
)

const (
	snapshotTime = "20060102T150405.000000000"
	stateEnd     = ".tfstate"
	stateName    = "terraform" + stateEnd
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
	c, err := readUnparsed(path)
	if err != nil {
		return nil, err
	}
	c.State, c.Reason = parse(c.data)
	return c, nil
}

// readUnparsed reads a copy without its State and Reason.
func readUnparsed(path string) (*Copy, error) {
	data, err := ownfile.ReadFile(path)
	if err != nil {
		return nil, err
	}
	info, err := os.Lstat(path)
	if err != nil {
		return nil, err
	}
	c := &Copy{Name: strings.TrimSuffix(info.Name(), stateEnd), Taken: info.ModTime(), path: path, data: data}
	if taken, err := time.Parse(snapshotTime, c.Name); err == nil {
		c.Taken = taken
	}
	return c, nil
}

// paths returns the paths of all snapshots, the newest last.
func (c Copies) paths() ([]string, error) {
	dir := filepath.Join(c.stage.Dir(), "snapshots")
	names, err := fs.Glob(ownfile.FS(dir), "*"+stateEnd) // sorted, and they begin with the time
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

// Newest returns the good snapshot with the highest serial of the state's lineage, or nil. The time in its
// name does not count: a clock can be wrong.
func (c Copies) Newest() (*Copy, error) {
	all, fits, err := c.ranked()
	if len(all) == 0 || !fits(all[0]) {
		return nil, err
	}
	return all[0], err
}

// ranked returns all snapshots, the best first, and whether one may replace the state. After a restore, those
// with a higher serial than the restored state are of no use.
func (c Copies) ranked() (all []*Copy, fits func(*Copy) bool, err error) {
	if all, err = c.Snapshots(); err != nil || len(all) == 0 {
		return nil, nil, err
	}
	seen, err := seenOf(c.stage).Read()
	if err != nil {
		return nil, nil, err
	}
	lineage := ""
	if data, err := ownfile.ReadFile(c.stage.StatePath()); seen != nil && seen.Lineage != "" {
		lineage = seen.Lineage
	} else if st, unreadable := parse(data); err == nil && unreadable == nil {
		lineage = st.Lineage
	} else if i := slices.IndexFunc(all, func(one *Copy) bool { return one.State != nil }); i >= 0 {
		lineage = all[i].State.Lineage
	}
	fits = func(one *Copy) bool {
		return one.State != nil && one.State.Lineage == lineage &&
			(seen == nil || seen.Lineage == "" || one.State.Serial < seen.Serial ||
				one.State.SHA256 == seen.SHA256)
	}
	slices.SortStableFunc(all, func(a, b *Copy) int {
		switch {
		case fits(a) && fits(b):
			return cmp.Compare(b.State.Serial, a.State.Serial)
		case fits(a):
			return -1
		case fits(b):
			return 1
		}
		return 0
	})
	return all, fits, nil
}

// snapshot keeps a copy of the state unless there is one, and removes the worst snapshots beyond
// Dir.KeepSnapshots. It returns the copy's path, or "" if there is no state yet.
func (c Copies) snapshot() (path string, err error) {
	st, err := c.stage.read()
	if err == nil {
		err = checkSeen(c.stage, st)
	}
	if err != nil || !st.Exists {
		return "", err
	}
	data, err := ownfile.ReadFile(c.stage.StatePath())
	if err != nil {
		return "", err
	}
	// Before the copy: it must not count as newer than the state that castle last saw.
	now := Seen{Serial: st.Serial, Lineage: st.Lineage, SHA256: st.SHA256}
	if seen, err := seenOf(c.stage).Read(); err != nil {
		return "", err
	} else if seen == nil || *seen != now {
		if err := seenOf(c.stage).Write(now); err != nil {
			return "", err
		}
	}
	paths, err := c.paths()
	if err != nil {
		return "", err
	}
	taken := time.Now().UTC()
	for _, path := range slices.Backward(paths) {
		last, err := readUnparsed(path)
		if err != nil || bytes.Equal(last.data, data) && !last.Taken.After(taken) {
			return path, err
		}
		if !last.Taken.After(taken) { // or the clock was wrong
			break
		}
	}
	// A copy, never a link: Terraform overwrites its state in place.
	path = filepath.Join(c.stage.Dir(), "snapshots", taken.Format(snapshotTime)+stateEnd)
	if err := atomicfile.MkdirPrivate(filepath.Dir(path)); err != nil {
		return "", err
	}
	if err := atomicfile.Write(path, data); err != nil {
		return "", err
	}
	keep := c.stage.dir.snapshots
	if keep == 0 || len(paths) < keep { // all of them and the new one
		return path, nil
	}
	all, _, err := c.ranked()
	if err != nil {
		return "", err
	}
	for ; len(all) > keep; all = all[:len(all)-1] {
		if err := c.stage.dir.Remove(all[len(all)-1].path); err != nil {
			return "", err
		}
	}
	return path, nil
}
