package state

import (
	"bytes"
	"errors"
	"fmt"
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
	snapshotEnd  = ".tfstate"
)

// Copy is a state that lies beside the one in force: a snapshot, or what
// Terraform could not write in its place.
type Copy struct {
	Name   string // a snapshot's is the moment it was taken, and unique
	Taken  time.Time
	State  *State // nil if it cannot be read
	Reason error  // why it cannot

	path    string
	data    []byte
	errored bool
}

// LineageError says that a copy is not of the state in whose place it was to be put.
type LineageError struct{ Copy, Of, Want string }

func (e *LineageError) Error() string {
	return fmt.Sprintf("%s has the lineage %s, and the stage's state %s: it is another state's and is not put in its place", e.Copy, e.Of, e.Want)
}

// Snapshots returns the snapshots, the newest first, those that cannot be read too.
func (s *Stage) Snapshots() ([]*Copy, error) {
	names, err := s.snapshotNames()
	if err != nil {
		return nil, err
	}
	var copies []*Copy
	for _, name := range slices.Backward(names) {
		c, err := readCopy(filepath.Join(s.snapshots(), name))
		if errors.Is(err, fs.ErrNotExist) { // a run has just dropped it
			continue
		}
		if err != nil {
			return nil, err
		}
		copies = append(copies, c)
	}
	return copies, nil
}

// Errored returns the state that Terraform left in the work directory because it
// could not write it in its place (the disk was full), or nil.
func (s *Stage) Errored() (*Copy, error) {
	c, err := readCopy(filepath.Join(s.Work(), "errored"+snapshotEnd))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	c.errored = true
	return c, nil
}

func readCopy(path string) (*Copy, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	c := &Copy{Name: strings.TrimSuffix(filepath.Base(path), snapshotEnd), Taken: info.ModTime(), path: path, data: data}
	if taken, err := time.Parse(snapshotTime, c.Name); err == nil {
		c.Taken = taken
	}
	c.State, c.Reason = parse(data)
	return c, nil
}

// Path is where the copy lies.
func (c *Copy) Path() string { return c.path }

// Follows returns an error unless the copy may take the place of the stage's
// state: it can be read, is of the same lineage, and, if it is what Terraform
// could not write, is newer. Where the state cannot be read, the newest good
// snapshot stands for it.
func (s *Stage) Follows(c *Copy) error {
	if c.State == nil {
		return &UnreadableError{Path: c.path, Reason: c.Reason}
	}
	now, err := s.read()
	if unreadable := new(UnreadableError); errors.As(err, &unreadable) {
		now, err = &State{}, nil
	}
	if err != nil {
		return err
	}
	if !now.Exists {
		good, err := s.newestGood()
		if err != nil || good == nil {
			return err
		}
		now = good.State
	}
	switch foreign := c.State.Lineage != now.Lineage; {
	case foreign && c.errored:
		return fmt.Errorf("%w; keep the one that is right and delete the other", &LineageError{Copy: c.path, Of: c.State.Lineage, Want: now.Lineage})
	case foreign:
		return &LineageError{Copy: c.path, Of: c.State.Lineage, Want: now.Lineage}
	case c.errored && c.State.SHA256 != now.SHA256 && c.State.Serial <= now.Serial:
		return fmt.Errorf("%s has serial %d, which is not newer than serial %d of %s; keep the one that is right and delete the other",
			c.path, c.State.Serial, now.Serial, s.StatePath())
	}
	return nil
}

// Sound returns an error that says what to do unless the state can be read and
// is the newest that there is. Where State would repair it, nothing is changed.
func (s *Stage) Sound() error {
	rescued, err := s.Errored()
	if err != nil {
		return err
	}
	if rescued != nil {
		if err := s.Follows(rescued); err != nil {
			return err
		}
		return errors.New(s.rescueWays(rescued))
	}
	if !s.dir.locked.Load() { // then State repairs nothing, and is patient with a run that is writing
		_, err = s.State()
		return err
	}
	_, err = s.read()
	if unreadable := new(UnreadableError); errors.As(err, &unreadable) {
		return errors.Join(s.showWayOut(unreadable), unreadable)
	}
	return err
}

func (s *Stage) rescueWays(rescued *Copy) string {
	return fmt.Sprintf("Terraform could not write the state and left serial %d in %s; the next create or destroy takes it over, and so does `castle state restore %s %s --errored`",
		rescued.State.Serial, rescued.path, s.dir.cluster, s.name)
}

// Sum stands for the state's content as it is on disk; the same content has the same.
func (s *Stage) Sum() (string, error) {
	var f Fingerprint
	err := f.AddFile("state", s.StatePath())
	return f.parts["state"], err
}

// Restore puts a copy that Follows in the place of the state, which must be
// locked, and returns what was put aside and where: the state as it was (a
// snapshot, if it could be read), and what Terraform could not write, which the
// next run would otherwise take over.
func (s *Stage) Restore(c *Copy) (aside []string, err error) {
	if err := s.Follows(c); err != nil {
		return nil, err
	}
	if err := s.outdate("state restored"); err != nil {
		return nil, err
	}
	if aside, err = s.keepPresent(); err != nil {
		return nil, err
	}
	if err := atomicfile.Write(s.StatePath(), c.data); err != nil {
		return aside, err
	}
	// The newest snapshot is what an unreadable state is restored from.
	if err := s.Snapshot(); err != nil {
		return aside, err
	}
	errored, err := s.Errored()
	if err != nil || errored == nil {
		return aside, err
	}
	if bytes.Equal(errored.data, c.data) {
		return aside, os.Remove(errored.path)
	}
	path := s.asidePath("errored")
	return append(aside, path), os.Rename(errored.path, path)
}

// outdate makes the fingerprint one that nothing has, so that the stage is stale
// and says why. Without it, the stage would be one that a run has left half-made.
func (s *Stage) outdate(why string) error {
	f, err := s.Fingerprint()
	if err != nil || f == nil {
		return err
	}
	f.Add(why)
	return s.SetFingerprint(f)
}

// keepPresent keeps the state as it is: as a snapshot, or, if it cannot be read,
// as a file beside it. Of nothing nothing is kept.
func (s *Stage) keepPresent() ([]string, error) {
	err := s.Snapshot()
	if err == nil {
		names, err := s.snapshotNames()
		if now, readErr := s.read(); readErr != nil || !now.Exists || len(names) == 0 {
			return nil, errors.Join(err, readErr)
		}
		return []string{filepath.Join(s.snapshots(), names[len(names)-1])}, err
	}
	if unreadable := new(UnreadableError); !errors.As(err, &unreadable) {
		return nil, err
	}
	data, err := os.ReadFile(s.StatePath())
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(data) == 0 {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	path := s.asidePath("unreadable")
	return []string{path}, atomicfile.Write(path, data)
}

func (s *Stage) asidePath(why string) string {
	return s.StatePath() + "." + why + "-" + time.Now().UTC().Format(snapshotTime)
}
