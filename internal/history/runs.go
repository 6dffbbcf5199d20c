package history

import (
	"cmp"
	"errors"
	"io/fs"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/event"
	"github.com/ephemeral-castle/castle/internal/state"
)

// Result is how a run ended.
type Result string

// The results of a run.
const (
	Succeeded   = Result(event.OutcomeSucceeded)
	Failed      = Result(event.OutcomeFailed)
	Refused     = Result(event.OutcomeRefused)
	Interrupted = Result(event.OutcomeInterrupted)

	Running Result = "running" // it holds the lock
	Died    Result = "died"    // it was killed, or its machine stopped
	Unknown Result = "unknown" // it has no journal
)

// Run is one run of a cluster.
type Run struct {
	ID          string    `json:"id"`
	Command     string    `json:"command"`                // create, destroy, plan …
	CommandLine string    `json:"command_line,omitempty"` // as the user typed it
	Started     time.Time `json:"started,omitzero"`
	Ended       time.Time `json:"ended,omitzero"` // of one that died: its last event
	Seconds     float64   `json:"seconds"`        // until it ended, or until now
	Result      Result    `json:"result"`
	ExitCode    *int      `json:"exit_code,omitempty"` // absent unless the run ended
	Reason      string    `json:"reason,omitempty"`    // its most important cause
	Resume      string    `json:"resume,omitempty"`    // the command that resumes it
	By          string    `json:"by,omitempty"`        // user@host
}

// Changes reports whether the run's command changes the cluster.
func (r Run) Changes() bool {
	changing := []string{"create", "destroy", "recreate", "renew", "restore", "rollout", "rotate"}
	return slices.Contains(changing, r.Command)
}

// Runs yields the runs of a cluster, the newest first. held is the holder of its lock, or nil.
func Runs(dir *state.Dir, held *state.HeldError) iter.Seq2[Run, error] {
	return func(yield func(Run, error) bool) {
		ids, err := dir.Runs()
		if err != nil {
			yield(Run{}, err)
			return
		}
		for _, id := range ids {
			if state.IsRunID(id) && !yield(Of(dir.Run(id), held)) {
				return
			}
		}
	}
}

// Last returns the newest run, and the newest one whose command changes the cluster; each may be nil.
func Last(dir *state.Dir, held *state.HeldError) (newest, change *Run, err error) {
	for one, err := range Runs(dir, held) {
		if err != nil {
			return newest, nil, err
		}
		if newest == nil {
			newest = &one
		}
		if one.Changes() {
			return newest, &one, nil
		}
	}
	return newest, nil, nil
}

// Of returns one run, by the first and the last event of its journal.
func Of(files *state.Run, held *state.HeldError) (Run, error) {
	one := Run{ID: files.ID, Command: state.RunKind(files.ID), Started: state.RunStart(files.ID),
		Result: Unknown}
	running := held != nil && held.Run == files.ID
	first, last, err := files.Bounds()
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return one, err
	}
	one.Started = cmp.Or(first.Time, one.Started)
	one.By, one.CommandLine = first.By, first.Command
	switch {
	case running:
		one.Result, one.Seconds = Running, time.Since(one.Started).Seconds()
		return one, nil
	case first.Kind == "":
		return one, nil
	}
	one.Ended, one.Seconds = last.Time, last.Time.Sub(one.Started).Seconds()
	one.Result, one.Resume = Died, first.Command // which continues it
	if last.Kind == event.RunEnded && last.Ending != nil {
		one.end(last)
	}
	return one, nil
}

// end adds what the event that ended the run says.
func (r *Run) end(e event.Event) {
	r.Result, r.ExitCode, r.Resume = Result(e.Ending.Result), &e.Ending.ExitCode, e.Ending.Resume
	if len(e.Ending.Causes) > 0 {
		c := e.Ending.Causes[0]
		r.Reason = strings.TrimPrefix(strings.Join(c.Stages, ", ")+": "+c.Text, ": ")
	}
}

// Read folds the journal of a run. Without one the error is fs.ErrNotExist.
func Read(files *state.Run) (*Timeline, error) {
	events, err := files.Events()
	return Fold(events), err
}

// Create returns the create of a run that the durations of a graph can come from: one that made all stages
// ready, and changed something. It is nil for any other run, and for one with an unreadable journal.
func Create(files *state.Run, stages []*config.Stage) *Part {
	kind := state.RunKind(files.ID)
	events, err := files.Events()
	if kind != "create" && kind != "recreate" || err != nil || len(events) == 0 ||
		!events[len(events)-1].Succeeded() {
		return nil
	}
	p, created := PartOf(kind, stages, events), false
	for _, s := range p.Stages {
		created = created || s.Result == event.ResultReady
		if s.Selected && s.Result != event.ResultReady && s.Result != event.ResultUpToDate {
			return nil
		}
	}
	if !created {
		return nil
	}
	return p
}

// Earlier returns the newest runs of these kinds, at most so many. They precede a run, unless before is
// empty. It leaves out runs that cannot be read: they only serve a comparison.
func Earlier(dir *state.Dir, before string, most int, kinds ...string) (runs []*Timeline) {
	ids, _ := dir.Runs() //nolint:errcheck // see above
	for _, id := range ids {
		if len(runs) == most || before != "" && id >= before || !slices.Contains(kinds, state.RunKind(id)) {
			continue
		}
		if t, err := Read(dir.Run(id)); err == nil && !t.Began.IsZero() {
			runs = append(runs, t)
		}
	}
	return runs
}
