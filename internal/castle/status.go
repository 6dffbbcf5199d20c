package castle

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/event"
	"github.com/ephemeral-castle/castle/internal/state"
	"github.com/ephemeral-castle/castle/internal/terraform"
)

// The states of a stage.
const (
	Absent      = "absent"      // never created, or destroyed
	Ready       = "ready"       // up to date, every gate open
	Stale       = "stale"       // what it depends on has changed since it was ready
	Failed      = "failed"      // its last run failed, or a gate is closed now
	Interrupted = "interrupted" // a run ended in the middle of it
)

// Status is what `castle status` says of a cluster.
type Status struct {
	Cluster  string        `json:"cluster"`
	Platform string        `json:"platform"`
	Stages   []StageStatus `json:"stages"`
	Unlisted []Unlisted    `json:"unlisted,omitempty"` // that are recorded and not configured any more
}

// StageStatus is one stage's part of a Status.
type StageStatus struct {
	Name    string       `json:"name"`
	Layer   string       `json:"layer"`
	State   string       `json:"state"`
	Changed []string     `json:"changed,omitempty"` // what makes it stale
	Reason  string       `json:"reason,omitempty"`  // why it failed
	Gates   []GateStatus `json:"gates"`
}

// GateStatus is what a gate answered when it was asked once.
type GateStatus struct {
	Name   string `json:"name"`
	Open   bool   `json:"open"`
	Reason string `json:"reason"`
	// Recorded reports that the last run failed for this gate and this reason.
	Recorded bool `json:"-"`
}

// AllReady reports whether every stage is ready.
func (s Status) AllReady() bool {
	for _, st := range s.Stages {
		if st.State != Ready {
			return false
		}
	}
	return true
}

// Status asks every gate once and compares every stage with what it was when it
// last became ready. It changes nothing and starts no Terraform.
func (c *Castle) Status(ctx context.Context) (Status, error) {
	all := Status{Cluster: c.cluster.Name, Platform: c.cluster.Platform}
	r := c.observe(ctx)
	states, err := r.recall()
	if err != nil {
		return all, c.conceal(err)
	}
	if all.Unlisted, err = r.unlisted(); err != nil {
		return all, c.conceal(err)
	}
	all.Stages = make([]StageStatus, len(c.cluster.Stages))
	err = errors.Join(each(c.cluster.Stages, func(s *config.Stage) error {
		one, err := r.statusOf(ctx, s, states[s])
		for i, x := range c.cluster.Stages {
			if x == s {
				all.Stages[i] = one
			}
		}
		return err
	})...)
	if ctx.Err() != nil {
		return all, context.Cause(ctx) // a question that was stopped is no answer
	}
	return all, c.conceal(err)
}

// recall reads the states of all stages and what they have said, as far as that
// can be read; where it cannot, the state's Notice says why.
func (r *run) recall() (map[*config.Stage]*state.State, error) {
	states := map[*config.Stage]*state.State{}
	for _, s := range r.cluster.Stages {
		st, err := r.dir.Stage(s.Name).LastKnown()
		if unreadable := new(state.UnreadableError); errors.As(err, &unreadable) {
			st = &state.State{Notice: err.Error()}
		} else if err != nil {
			return nil, err
		}
		states[s] = st
		r.said.put(s, r.outputsOf(s, st))
	}
	return states, nil
}

func (r *run) statusOf(ctx context.Context, s *config.Stage, st *state.State) (StageStatus, error) {
	one := StageStatus{Name: s.Name, Layer: s.Layer, State: Absent, Gates: []GateStatus{}}
	dir := r.dir.Stage(s.Name)
	rec, err := dir.Record()
	if errors.Is(err, fs.ErrNotExist) {
		return one, nil
	}
	if err != nil {
		return one, err
	}
	old, err := dir.Fingerprint().Read()
	if err != nil {
		return one, err
	}
	var recorded outcome
	if old == nil {
		one.State, recorded = r.lastRun(rec)
		one.Reason = recorded.failure
		if one.State == Interrupted {
			one.Reason = r.masker.Hide(cutShort(dir, st))
		}
	} else if one.Changed, err = r.changed(s, old); err != nil { // an input is not known any more
		one.State, one.Reason = Stale, r.masker.Hide(err.Error())
	} else if one.State = Ready; len(one.Changed) > 0 {
		one.State = Stale
	}
	if st.Notice != "" { // it cannot be read
		one.State, one.Reason = Failed, r.masker.Hide(st.Notice)
	}
	if !st.Exists {
		return one, nil
	}
	for i, err := range each(s.Gates, func(g *config.Gate) error { return r.askOne(ctx, s, g) }) {
		g := GateStatus{Name: s.Gates[i].Name(), Open: err == nil}
		if err != nil {
			g.Reason = r.masker.Hide(err.Error())
			g.Recorded = recorded.closed[g.Name] == g.Reason
			if one.State == Ready {
				one.State = Failed
			}
		}
		one.Gates = append(one.Gates, g)
	}
	return one, nil
}

// cutShort says what a run that did not come to its end may have made.
func cutShort(dir *state.Stage, st *state.State) string {
	intent, err := dir.Intent().Read()
	if err != nil {
		return err.Error()
	}
	if intent == nil {
		return ""
	}
	reason := fmt.Sprintf("run %s was cut short", intent.Run)
	var lost []string
	for _, c := range intent.InFlight(st.Has) {
		if !endsWithState(c.Type) {
			lost = append(lost, c.Address)
		}
	}
	if len(lost) > 0 {
		reason += "; the next one looks for what it may have made: " + strings.Join(lost, ", ")
	}
	return reason
}

// changed names what differs from the stage's last good apply.
func (r *run) changed(s *config.Stage, old *state.Fingerprint) ([]string, error) {
	binary, err := r.binary()
	if err != nil {
		return nil, err
	}
	now, err := r.fingerprintOf(s, &terraform.Root{Binary: binary, Dir: r.dir.Stage(s.Name).Work()})
	if err != nil {
		return nil, err
	}
	return now.Changed(old), nil
}

// lastRun says how the run that last touched a stage without making it ready
// left it: failed with a reason, or in the middle; a run that is alive has not
// left it yet.
func (r *run) lastRun(rec state.Record) (string, outcome) {
	if held := r.dir.Holder(); held != nil {
		// A destroy leaves a stage's record as it was, so that only its journal says so.
		if r.outcome(held.Run, rec.Name).started || held.Run == rec.Run {
			text := fmt.Sprintf("run %s (process %d on %s) is working on it", held.Run, held.PID, held.Host)
			return Stale, outcome{failure: text}
		}
	}
	runs, err := r.dir.Runs()
	if err != nil {
		return Interrupted, outcome{}
	}
	for _, id := range runs {
		if found := r.outcome(id, rec.Name); found.failure != "" {
			return Failed, found
		} else if found.started {
			break
		}
	}
	return Interrupted, outcome{}
}

// outcome is a stage's result in one run, from its journal.
type outcome struct {
	started bool
	failure string            // empty unless it failed
	closed  map[string]string // last reason of each gate that did not open
}

// outcome reads the journal of a run for what it did to a stage.
func (r *run) outcome(run, stage string) outcome {
	found := outcome{closed: map[string]string{}}
	events, err := r.dir.Run(run).Events()
	if err != nil {
		return outcome{}
	}
	for _, e := range events {
		if e.Stage != stage {
			continue
		}
		switch e.Kind {
		case event.StageStarted:
			found.started = true
		case event.GateClosed:
			found.closed[e.Gate] = e.Text
		case event.GateOpen:
			delete(found.closed, e.Gate)
		case event.StageFailed:
			found.started, found.failure = true, e.Text
			return found
		}
	}
	return found
}
