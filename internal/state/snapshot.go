package state

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/ephemeral-castle/castle/internal/atomicfile"
)

const (
	// A state that is being written by a run of somebody else is whole again in
	// an instant; status asks that often before it calls it unreadable.
	readings     = 5
	readingPause = 20 * time.Millisecond
)

// UnreadableError says that a state cannot be read and why nothing took its place.
type UnreadableError struct {
	Path   string
	Reason error
	WayOut string // the newest good snapshot and the command that restores it, if there is one
}

func (e *UnreadableError) Error() string {
	text := fmt.Sprintf("%s: state unreadable: %v", e.Path, e.Reason)
	if e.WayOut != "" {
		text += "\n  " + e.WayOut
	}
	return text
}

func (e *UnreadableError) Unwrap() error { return e.Reason }

// State reads the Terraform state. If it cannot be read and this process holds
// the cluster lock, the newest good snapshot takes its place and Notice says so;
// otherwise the error is an *UnreadableError. An unreadable state never counts
// as an empty one: Terraform would build everything a second time.
func (s *Stage) State() (*State, error) {
	if s.dir.locked.Load() {
		return s.repaired()
	}
	for reading := 1; ; reading++ {
		st, err := s.read()
		unreadable := new(UnreadableError)
		if !errors.As(err, &unreadable) {
			return st, err
		}
		if reading == readings {
			return nil, errors.Join(s.showWayOut(unreadable), unreadable)
		}
		time.Sleep(readingPause)
	}
}

func (s *Stage) showWayOut(e *UnreadableError) error {
	good, err := s.newestGood()
	if err != nil || good == nil {
		return err
	}
	e.WayOut = fmt.Sprintf("its newest good snapshot has serial %d and is from %s; put it in its place with `castle state restore %s %s`",
		good.State.Serial, good.Taken.Local().Format(time.DateTime), s.dir.cluster, s.name)
	return nil
}

// LastKnown reads the state as State does, and says what State will do under the
// cluster lock, while nothing is changed: where Terraform could not write the
// state, it is what Terraform left; where it cannot be read but there is a
// snapshot, it is what that says. Notice says so.
func (s *Stage) LastKnown() (*State, error) {
	rescued, err := s.Errored()
	if err != nil {
		return nil, err
	}
	if rescued != nil && rescued.State != nil {
		return s.lastRescued(rescued)
	}
	st, err := s.State()
	unreadable := new(UnreadableError)
	if !errors.As(err, &unreadable) {
		return st, err
	}
	good, lost := s.newestGood()
	if lost == nil && good == nil {
		return s.lastNew(unreadable)
	}
	if lost != nil {
		return nil, errors.Join(err, lost)
	}
	good.State.Notice = fmt.Sprintf("the state is unreadable (%v); the next run restores serial %d from %s",
		unreadable.Reason, good.State.Serial, good.Taken.Local().Format(time.DateTime))
	return good.State, nil
}

// lastNew is what LastKnown says where there is no snapshot of what cannot be read.
func (s *Stage) lastNew(unreadable *UnreadableError) (*State, error) {
	intent, err := s.Intent()
	if err != nil || intent == nil || !intent.New {
		return nil, errors.Join(unreadable, err)
	}
	return &State{Outputs: map[string]Output{}, Notice: fmt.Sprintf(
		"the state is unreadable (%v), and there was none before; the next run looks for what was being made", unreadable.Reason)}, nil
}

func (s *Stage) lastRescued(rescued *Copy) (*State, error) {
	if err := s.Follows(rescued); err != nil {
		return nil, &UnreadableError{Path: s.StatePath(), Reason: err}
	}
	rescued.State.Notice = s.rescueWays(rescued)
	return rescued.State, nil
}

// Snapshot keeps a copy of the state as it is now, unless the newest copy is the
// same, and drops all but the newest of them (Dir.KeepSnapshots). It keeps only what
// can be read: State comes first, as it repairs and says what it did.
func (s *Stage) Snapshot() error {
	if st, err := s.read(); err != nil || !st.Exists {
		return err
	}
	data, err := os.ReadFile(s.StatePath())
	if err != nil {
		return err
	}
	names, err := s.snapshotNames()
	if err != nil {
		return err
	}
	if len(names) > 0 {
		newest, err := os.ReadFile(filepath.Join(s.snapshots(), names[len(names)-1]))
		if err == nil && bytes.Equal(newest, data) {
			return nil
		}
	}
	// A copy, never a link: Terraform overwrites its state in place.
	if err := s.writeSnapshot(data); err != nil {
		return err
	}
	for s.dir.snapshots > 0 && len(names) >= s.dir.snapshots {
		if err := os.Remove(filepath.Join(s.snapshots(), names[0])); err != nil {
			return err
		}
		names = names[1:]
	}
	return nil
}

func (s *Stage) writeSnapshot(data []byte) error {
	if err := atomicfile.MkdirPrivate(s.snapshots()); err != nil {
		return err
	}
	name := time.Now().UTC().Format(snapshotTime) + snapshotEnd
	return atomicfile.Write(filepath.Join(s.snapshots(), name), data)
}

// snapshotNames returns them, the newest last.
func (s *Stage) snapshotNames() ([]string, error) {
	paths, err := filepath.Glob(filepath.Join(s.snapshots(), "*.tfstate"))
	for i, p := range paths { // Glob sorts, and the names begin with the time
		paths[i] = filepath.Base(p)
	}
	return paths, err
}

// read reads the state as it is. No file, and an empty file without any
// snapshot of a stage that was never ready, is a state that does not exist yet:
// Terraform makes the empty file when it takes its lock, before it has changed
// anything.
func (s *Stage) read() (*State, error) {
	data, err := os.ReadFile(s.StatePath())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if len(data) == 0 {
		return s.readNothing()
	}
	st, err := parse(data)
	if err != nil {
		return nil, &UnreadableError{Path: s.StatePath(), Reason: err}
	}
	return st, nil
}

func (s *Stage) readNothing() (*State, error) {
	last, err := s.newestGood()
	if err != nil {
		return nil, err
	}
	if last != nil || exists(s.fingerprintPath()) {
		return nil, &UnreadableError{Path: s.StatePath(), Reason: errors.New("missing or empty, and it was not before")}
	}
	return &State{Outputs: map[string]Output{}}, nil
}

// repaired reads the state and mends what a crash can do to it.
func (s *Stage) repaired() (*State, error) {
	rescued, err := s.adoptRescued()
	if err != nil {
		return nil, err
	}
	st, err := s.read()
	if unreadable := new(UnreadableError); errors.As(err, &unreadable) {
		st, err = s.restore(unreadable)
	}
	if err == nil && rescued != "" {
		st.Notice = strings.TrimSuffix(rescued+"\n"+st.Notice, "\n")
	}
	return st, err
}

// restore puts the newest good snapshot in the place of an unreadable state,
// which stays beside it for whoever wants to look. Where the first apply of all
// was cut short there is no snapshot, and the state before it was none: all that
// the unreadable one might say is in the intent.
func (s *Stage) restore(cause *UnreadableError) (*State, error) {
	good, err := s.newestGood()
	if err != nil {
		return nil, err
	}
	intent, err := s.Intent()
	if err != nil {
		return nil, err
	}
	if good == nil && (intent == nil || !intent.New) {
		return nil, &UnreadableError{Path: cause.Path, Reason: fmt.Errorf("%w; there is no snapshot of it", cause.Reason)}
	}
	broken := s.asidePath("unreadable")
	if err := os.Rename(s.StatePath(), broken); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if good == nil {
		return &State{Outputs: map[string]Output{}, Notice: fmt.Sprintf(
			"stage %s: the state was unreadable (%v), and there was none before; it is kept in %s", s.name, cause.Reason, broken)}, atomicfile.SyncDir(s.Dir())
	}
	if err := atomicfile.Write(s.StatePath(), good.data); err != nil {
		return nil, err
	}
	good.State.Notice = fmt.Sprintf("stage %s: the state was unreadable (%v); restored serial %d from %s; what was made after it is not in it",
		s.name, cause.Reason, good.State.Serial, good.Taken.Local().Format(time.DateTime))
	return good.State, nil
}

// newestGood returns the newest snapshot that can be read, or nil.
func (s *Stage) newestGood() (*Copy, error) {
	names, err := s.snapshotNames()
	if err != nil {
		return nil, err
	}
	for i := len(names) - 1; i >= 0; i-- {
		c, err := readCopy(filepath.Join(s.snapshots(), names[i]))
		if err != nil || c.State != nil {
			return c, err
		}
	}
	return nil, nil
}

// adoptRescued takes over errored.tfstate, which Terraform leaves in the work
// directory when it could not write the state itself (disk full), if it is
// newer. It returns a notice.
func (s *Stage) adoptRescued() (string, error) {
	rescued, err := s.Errored()
	if err != nil || rescued == nil {
		return "", err
	}
	if rescued.State == nil {
		return s.setAside(rescued)
	}
	if err := s.Follows(rescued); err != nil {
		return "", err
	}
	if _, err := s.keepPresent(); err != nil {
		return "", err
	}
	if err := atomicfile.Write(s.StatePath(), rescued.data); err != nil {
		return "", err
	}
	if err := os.Remove(rescued.path); err != nil {
		return "", err
	}
	return fmt.Sprintf("stage %s: took over the state that Terraform could not write (serial %d)", s.name, rescued.State.Serial), nil
}

// setAside keeps what Terraform left where no one takes it for a state: a full
// disk had no room for that either, and nothing more can be learned from it.
func (s *Stage) setAside(rescued *Copy) (string, error) {
	path := s.asidePath("errored")
	if err := os.Rename(rescued.path, path); err != nil {
		return "", err
	}
	return fmt.Sprintf("stage %s: Terraform could not write the state, nor wholly what it leaves then (%v), which is kept as %s; what it made last may not be in the state",
		s.name, rescued.Reason, path), nil
}
