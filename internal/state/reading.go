package state

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"time"

	"github.com/ephemeral-castle/castle/internal/atomicfile"
	"github.com/ephemeral-castle/castle/internal/ownfile"
)

const (
	// A state that another run writes is whole again in an instant: it is read this often.
	readAttempts = 5
	readInterval = 20 * time.Millisecond
)

// UnreadableError reports that a state cannot be read and was not restored.
type UnreadableError struct {
	Path   string
	Reason error
	Fix    string // the newest good snapshot and the command that restores it, if there is one
	State  *State // its content if it can be read, but is not the state that castle last saw
}

func (e *UnreadableError) Error() string {
	text, fix := "state unreadable", "restore the file from a backup, or, if nothing that the stage has "+
		"made exists any more, move the stage's folder away"
	if e.State != nil {
		text, fix = "not the state that castle knows", ""
	}
	if fix = cmp.Or(e.Fix, fix); fix != "" {
		fix = "\n  " + fix
	}
	return fmt.Sprintf("%s: %s: %v%s", e.Path, text, e.Reason, fix)
}

func (e *UnreadableError) Unwrap() error { return e.Reason }

// State reads the Terraform state. If it is unreadable and this process holds the cluster lock, the newest
// good snapshot replaces it and Notice reports that. Otherwise the error is an *UnreadableError. An
// unreadable state never counts as empty: Terraform would create everything a second time.
func (s *Stage) State() (*State, error) {
	if s.dir.locked.Load() {
		return s.Copies().repair()
	}
	return s.readWhole()
}

// readWhole reads the state and repairs nothing. It waits for a writer.
func (s *Stage) readWhole() (*State, error) {
	for attempt := 1; ; attempt++ {
		st, err := s.read()
		if err == nil {
			err = checkSeen(s, st)
		}
		unreadable, is := errors.AsType[*UnreadableError](err)
		if !is {
			return st, err
		}
		if attempt == readAttempts {
			return nil, s.withFix(unreadable)
		}
		time.Sleep(readInterval)
	}
}

// CheckState returns an error with a fix unless the state can be read and is the newest. It repairs nothing.
func (s *Stage) CheckState() error {
	errored, err := s.Copies().Errored()
	if err != nil {
		return err
	}
	if errored != nil {
		if err := s.Copies().Check(errored); err != nil {
			return err
		}
		return errors.New(erroredFix(s, errored))
	}
	_, err = s.readWhole()
	return err
}

// LastKnown reads the state as State does, but never repairs it. Where State would repair it under the
// cluster lock, LastKnown returns the result of that repair; Notice reports it.
func (s *Stage) LastKnown() (*State, error) {
	errored, err := s.Copies().Errored()
	if err != nil {
		return nil, err
	}
	if errored != nil && errored.State != nil {
		if err := s.Copies().Check(errored); err != nil {
			return nil, &UnreadableError{Path: s.StatePath(), Reason: err}
		}
		errored.State.Notice = erroredFix(s, errored)
		return errored.State, nil
	}
	st, err := s.readWhole()
	unreadable, is := errors.AsType[*UnreadableError](err)
	if !is || unreadable.State != nil {
		return st, err
	}
	good, err := s.Copies().replacement(unreadable)
	if err != nil {
		return nil, err
	}
	if good == nil {
		return noState(fmt.Sprintf("the state is unreadable (%v) and there was none before; "+
			"the next run looks for what the interrupted one was creating", unreadable.Reason)), nil
	}
	good.State.Notice = fmt.Sprintf("the state is unreadable (%v); the next run restores serial %d from %s",
		unreadable.Reason, good.State.Serial, good.taken())
	return good.State, nil
}

// withFix adds the newest good snapshot to an error.
func (s *Stage) withFix(e *UnreadableError) error {
	good, err := s.Copies().Newest()
	if good != nil && err == nil {
		e.Fix = fmt.Sprintf("the newest good snapshot has serial %d and is from %s; "+
			"restore it with `castle state restore %s %s`",
			good.State.Serial, good.taken(), s.dir.cluster, s.name)
	}
	return errors.Join(err, e)
}

func erroredFix(s *Stage, errored *Copy) string {
	return fmt.Sprintf("Terraform could not write the state and left serial %d in %s; "+
		"the next create or destroy restores it, or `castle state restore %s %s --errored` does",
		errored.State.Serial, errored.path, s.dir.cluster, s.name)
}

// Snapshot keeps a copy of the state and removes the oldest copies beyond
// Dir.KeepSnapshots. A state that cannot be read is an error; State repairs it.
func (s *Stage) Snapshot() error {
	_, err := s.Copies().snapshot()
	return err
}

// StateDigest returns a digest of the state's file as it is.
func (s *Stage) StateDigest() (string, error) {
	var f Fingerprint
	err := f.addFile("state", s.StatePath(), ownfile.Open)
	return f["state"], err
}

// read reads the state unchanged. A missing or empty file is a state that does not exist yet, if the stage
// has no good snapshot and was never ready: Terraform creates it for its lock before it changes anything.
func (s *Stage) read() (*State, error) {
	data, err := ownfile.ReadFile(s.StatePath())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if len(data) > 0 {
		st, err := parse(data)
		if err != nil {
			return nil, &UnreadableError{Path: s.StatePath(), Reason: err}
		}
		return st, nil
	}
	good, err := s.Copies().Newest()
	if err != nil {
		return nil, err
	}
	seen, err := seenOf(s).Read()
	if err != nil {
		return nil, err
	}
	if good != nil || exists(s.Fingerprint().path) || seen != nil && seen.Lineage != "" {
		err = errors.New("missing or empty, and it was not before")
		return nil, &UnreadableError{Path: s.StatePath(), Reason: err}
	}
	return noState(""), nil
}

func noState(notice string) *State { return &State{Outputs: map[string]Output{}, Notice: notice} }

// Copies are the states beside a stage's state, from which it can be restored.
type Copies struct{ stage *Stage }

// Copies returns the copies of the stage's state.
func (s *Stage) Copies() Copies { return Copies{s} }

// Errored returns errored.tfstate, which Terraform leaves in the work directory when
// it cannot write the state itself (disk full), or nil.
func (c Copies) Errored() (*Copy, error) {
	errored, err := readCopy(filepath.Join(c.stage.Work(), "errored"+stateEnd))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	errored.errored = true
	return errored, nil
}

// Check returns an error unless the copy may replace the state. The copy must be readable, of the same
// lineage and, if it is errored.tfstate, newer. The newest good snapshot stands for an unreadable state.
func (c Copies) Check(from *Copy) error {
	if from.State == nil {
		return &UnreadableError{Path: from.path, Reason: from.Reason}
	}
	now, err := c.stage.read()
	if errors.As(err, new(*UnreadableError)) {
		now, err = &State{}, nil
	}
	if err != nil {
		return err
	}
	seen, err := seenOf(c.stage).Value()
	if err != nil {
		return err
	}
	if !now.Exists {
		good, err := c.Newest()
		if err != nil || good == nil {
			return err
		}
		now = good.State
	}
	switch want := cmp.Or(seen.Lineage, now.Lineage); {
	case from.State.Lineage != want:
		err = fmt.Errorf("%s belongs to another state: its lineage is %q, the stage's state has %q",
			from.path, from.State.Lineage, want)
	case from.errored && from.State.SHA256 != now.SHA256 && from.State.Serial <= now.Serial:
		err = fmt.Errorf("%s has serial %d, which is not newer than serial %d of %s",
			from.path, from.State.Serial, now.Serial, c.stage.StatePath())
	}
	if err != nil && from.errored {
		err = fmt.Errorf("%w; keep the right one and delete the other", err)
	}
	return err
}

// Restore replaces the state, which must be locked, by a copy that passes Check. It
// returns the paths at which the previous state and errored.tfstate are kept.
func (c Copies) Restore(from *Copy) (kept []string, err error) {
	if err := c.Check(from); err != nil {
		return nil, err
	}
	if err := c.outdate("state restored"); err != nil {
		return nil, err
	}
	aside, err := c.keepPresent()
	if err != nil {
		return nil, err
	}
	if aside != "" {
		kept = append(kept, aside)
	}
	if err := c.replace(from); err != nil {
		return kept, err
	}
	// An unreadable state is restored from the newest snapshot.
	if err := c.stage.Snapshot(); err != nil {
		return kept, err
	}
	// The next run would restore errored.tfstate otherwise.
	errored, err := c.Errored()
	if err != nil || errored == nil {
		return kept, err
	}
	if bytes.Equal(errored.data, from.data) {
		return kept, c.stage.dir.Remove(errored.path)
	}
	path := c.keptPath("errored")
	return append(kept, path), c.stage.dir.Rename(errored.path, path)
}

// replace writes a copy as the state.
func (c Copies) replace(with *Copy) error {
	if err := BeginChange(c.stage); err != nil {
		return err
	}
	return atomicfile.Write(c.stage.StatePath(), with.data)
}

// outdate changes the fingerprint so that the stage is outdated and names the reason.
// Without a fingerprint it would count as interrupted.
func (c Copies) outdate(reason string) error {
	f, err := c.stage.Fingerprint().Read()
	if err != nil || f == nil {
		return err
	}
	f.Add(reason)
	return c.stage.Fingerprint().Write(*f)
}

// keepPresent keeps the state as it is, as a snapshot or, if it cannot be read, as a file beside it. It
// returns that path, or "" if there is no state.
func (c Copies) keepPresent() (path string, err error) {
	path, err = c.snapshot()
	if !errors.As(err, new(*UnreadableError)) {
		return path, err
	}
	data, err := ownfile.ReadFile(c.stage.StatePath())
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(data) == 0 {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	path = c.keptPath("unreadable")
	return path, atomicfile.Write(path, data)
}

func (c Copies) keptPath(why string) string {
	return c.stage.StatePath() + "." + why + "-" + time.Now().UTC().Format(snapshotTime)
}

// repair reads the state and repairs the damage of a crash.
func (c Copies) repair() (*State, error) {
	notice, err := c.restoreErrored()
	if err != nil {
		return nil, err
	}
	st, err := c.stage.read()
	if unreadable, is := errors.AsType[*UnreadableError](err); is {
		st, err = c.restoreNewest(unreadable)
	}
	if err == nil {
		err = checkSeen(c.stage, st)
	}
	if err == nil && notice != "" {
		st.Notice = strings.TrimSuffix(notice+"\n"+st.Notice, "\n")
	}
	return st, err
}

// replacement returns the newest good snapshot for an unreadable state, or the error if there is none. It is
// nil after an interrupted first apply: there was no state before it, and the intent holds all of it.
func (c Copies) replacement(none error) (*Copy, error) {
	good, err := c.Newest()
	if good != nil || err != nil {
		return good, err
	}
	intent, err := c.stage.Intent().Read()
	if err == nil && (intent == nil || !intent.New) {
		err = none
	}
	return nil, err
}

// restoreNewest puts the replacement of an unreadable state in its place, and keeps the old file.
func (c Copies) restoreNewest(cause *UnreadableError) (*State, error) {
	none := fmt.Errorf("%w; there is no snapshot of it", cause.Reason)
	good, err := c.replacement(&UnreadableError{Path: cause.Path, Reason: none})
	if err != nil {
		return nil, err
	}
	kept := c.keptPath("unreadable")
	if err := c.stage.dir.Rename(c.stage.StatePath(), kept); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	text := fmt.Sprintf("stage %s: the state was unreadable (%v)", c.stage.name, cause.Reason)
	if good == nil {
		text += " and there was none before; it is kept in " + kept
		return noState(text), atomicfile.SyncDir(c.stage.Dir())
	}
	if err := c.replace(good); err != nil {
		return nil, err
	}
	good.State.Notice = fmt.Sprintf("%s; restored serial %d from %s, which lacks later changes",
		text, good.State.Serial, good.taken())
	return good.State, nil
}

// restoreErrored replaces the state by errored.tfstate, if there is one, and returns a notice.
func (c Copies) restoreErrored() (notice string, err error) {
	errored, err := c.Errored()
	if err != nil || errored == nil {
		return "", err
	}
	if errored.State == nil { // a full disk had no room for all of it either
		path := c.keptPath("errored")
		return fmt.Sprintf("stage %s: Terraform could not write the state, and errored.tfstate is "+
			"incomplete (%v); it is kept in %s, and the state may lack the last changes",
			c.stage.name, errored.Reason, path), c.stage.dir.Rename(errored.path, path)
	}
	if err := c.Check(errored); err != nil {
		return "", err
	}
	if _, err := c.keepPresent(); err != nil {
		return "", err
	}
	if err := c.replace(errored); err != nil {
		return "", err
	}
	return fmt.Sprintf("stage %s: restored the state that Terraform could not write (serial %d)",
		c.stage.name, errored.State.Serial), c.stage.dir.Remove(errored.path)
}
