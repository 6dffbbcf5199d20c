// Package past reads the runs that a cluster has had from their journals: which command, by whom, when, and
// how it ended. It reads the beginning and the end of a journal, so that a list of many runs is quick. It
// contacts nothing, except the store for the holder of the lock.
package past

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"strings"
	"time"

	"github.com/ephemeral-castle/castle/internal/cluster"
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
	CommandLine string    `json:"command_line,omitempty"` // as the user typed it; absent in older journals
	Started     time.Time `json:"started,omitzero"`
	Ended       time.Time `json:"ended,omitzero"` // of one that died: its last event
	Seconds     float64   `json:"seconds"`        // until it ended, or until now
	Result      Result    `json:"result"`
	ExitCode    *int      `json:"exit_code,omitempty"` // absent unless the run ended, and in older journals
	Reason      string    `json:"reason,omitempty"`    // its most important cause
	Resume      string    `json:"resume,omitempty"`    // the command that resumes it
	By          string    `json:"by,omitempty"`        // user@host; absent in older journals
}

// Changes reports whether the run's command changes the cluster.
func (r Run) Changes() bool {
	switch r.Command {
	case "create", "destroy", "recreate":
		return true
	}
	return false
}

// All returns the runs of a cluster, the newest first. held is the holder of its lock, or nil.
func All(c *cluster.Cluster, held *state.HeldError) ([]Run, error) {
	ids, err := c.Dir.Runs()
	if err != nil {
		return nil, err
	}
	all := []Run{}
	for _, id := range ids {
		if !state.IsRunID(id) {
			continue
		}
		one, err := read(c.Dir.Run(id), held)
		if err != nil {
			return nil, c.MaskError(err)
		}
		one.Reason = c.Masker.Hide(one.Reason)
		all = append(all, one)
	}
	return all, nil
}

// Last returns the newest run, and the newest one whose command changes the cluster; each may be nil.
func Last(dir *state.Dir, held *state.HeldError) (newest, change *Run, err error) {
	ids, err := dir.Runs()
	if err != nil {
		return nil, nil, err
	}
	for _, id := range ids {
		if !state.IsRunID(id) {
			continue
		}
		one, err := read(dir.Run(id), held)
		if err != nil {
			return newest, change, err
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

// Find returns the id of the run that reference names by its id, or by the beginning or end of it.
func Find(c *cluster.Cluster, reference string) (string, error) {
	ids, err := c.Dir.Runs()
	if err != nil {
		return "", err
	}
	var found []string
	for _, id := range ids {
		if id == reference {
			return id, nil
		}
		if state.IsRunID(id) && (strings.HasPrefix(id, reference) || strings.HasSuffix(id, reference)) {
			found = append(found, id)
		}
	}
	list := c.Command("history")
	switch len(found) {
	case 1:
		return found[0], nil
	case 0:
		return "", cluster.Usagef("%s has no run %q (any more): `%s` lists its runs", c.Name(), reference,
			list)
	}
	return "", cluster.Usagef("%s has %d runs %q: name one of %s", c.Name(), len(found), reference,
		strings.Join(found, ", "))
}

// Of returns one run.
func Of(ctx context.Context, c *cluster.Cluster, id string) (Run, error) {
	return read(c.Dir.Run(id), cluster.Holder(ctx, c))
}

func read(files *state.Run, held *state.HeldError) (Run, error) {
	one := Run{
		ID: files.ID, Command: state.RunKind(files.ID), Started: state.RunStart(files.ID), Result: Unknown,
	}
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
	one.Result = Died
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
