package workingcopy

import (
	"errors"
	"fmt"
	"time"

	"github.com/ephemeral-castle/castle/internal/state/commits"
)

// LostError reports that another run has taken over the lock: this one must start nothing more.
type LostError struct {
	Cluster string
	Dir     string
	Run     string          // that has lost it
	By      commits.Lock    // the holder; zero if the lock was released since, or with castle unlock
	At      *commits.Commit // the newest commit
}

func (e *LostError) Error() string {
	who := fmt.Sprintf("commit %d of %s on %s has removed it", e.At.Sequence, e.At.User, e.At.Host)
	if e.By.Run != "" {
		who = fmt.Sprintf("run %s on %s has taken it over at %s", e.By.Run, e.By.Host,
			e.By.Since.Local().Format(time.DateTime))
	}
	return fmt.Sprintf("cluster %s: run %s has lost the lock: %s\n  castle starts nothing more here; "+
		"changes that were not committed stay in %s, and the next command keeps them aside",
		e.Cluster, e.Run, who, e.Dir)
}

// UncommittedError reports that the store did not take the last changes of a run.
type UncommittedError struct {
	Cluster, Dir string

	Err error
}

func (e *UncommittedError) Error() string {
	return fmt.Sprintf("cluster %s: the last changes are not committed: %v\n  they are in %s; give the same "+
		"command again on this machine: it commits them", e.Cluster, e.Err, e.Dir)
}

func (e *UncommittedError) Unwrap() error { return e.Err }

// unreleased explains why a lock was not released.
func unreleased(h *Held, err error) error {
	if errors.As(err, new(*LostError)) {
		return err
	}
	return &UncommittedError{Cluster: h.copy.dir.Cluster(), Dir: h.copy.dir.Path(), Err: err}
}
