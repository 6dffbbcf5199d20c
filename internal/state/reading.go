package state

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"
)

const (
	// A state that another run is writing is whole again in an instant. It is read this often before it
	// counts as unreadable.
	readAttempts = 5
	readInterval = 20 * time.Millisecond
)

// UnreadableError reports that a state cannot be read and was not restored.
type UnreadableError struct {
	Path   string
	Reason error
	Fix    string // the newest good snapshot and the command that restores it, if there is one
}

func (e *UnreadableError) Error() string {
	text := fmt.Sprintf("%s: state unreadable: %v", e.Path, e.Reason)
	if e.Fix != "" {
		text += "\n  " + e.Fix
	}
	return text
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

// CheckState returns an error with a fix unless the state can be read and is the
// newest one. Unlike State it repairs nothing.
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
	if !is {
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
	good, err := s.Copies().newestGood()
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
	err := f.AddFile("state", s.StatePath())
	return f["state"], err
}

// read reads the state unchanged. A missing or empty file is a state that does not exist yet, if the stage
// has no good snapshot and was never ready. Terraform creates the empty file for its lock before it changes
// anything.
func (s *Stage) read() (*State, error) {
	data, err := os.ReadFile(s.StatePath())
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
	good, err := s.Copies().newestGood()
	if err != nil {
		return nil, err
	}
	if good != nil || exists(s.Fingerprint().path) {
		err = errors.New("missing or empty, and it was not before")
		return nil, &UnreadableError{Path: s.StatePath(), Reason: err}
	}
	return noState(""), nil
}

func noState(notice string) *State { return &State{Outputs: map[string]Output{}, Notice: notice} }
