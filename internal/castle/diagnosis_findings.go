package castle

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/event"
	"github.com/ephemeral-castle/castle/internal/gate"
)

// finding is one thing that failed and what was found about it.
type finding struct {
	said  event.Diagnosis
	gate  string                               // its name; empty for a step of Terraform's
	kind  gate.Kind                            // of the gate's last answer
	ask   func(context.Context) gate.Diagnosis // nil once it has been asked
	found gate.Diagnosis
}

// lookNow explains a gate at the moment when it is given up: the stage's others
// may go on for minutes, and what kept this one closed may be gone by then.
func lookNow(ctx context.Context, g *config.Gate, bound gate.Gate, closed *GateError) *finding {
	f := &finding{gate: g.Name(), kind: gate.KindOf(closed), said: waited(g, closed)}
	if bound.Diagnose != nil {
		ctx, stop := context.WithTimeout(ctx, diagnosisTime)
		defer stop()
		f.found = bounded(ctx, bound.Diagnose)
	}
	return f
}

// findings lists what of a stage's error can be explained.
func (r *run) findings(ctx context.Context, s subject, err error) []*finding {
	closed := closedGates(err)
	if out := (timeoutError{}); len(closed) == 0 && errors.As(err, &out) {
		closed = r.closedNow(ctx, s) // the whole stage had no more time, whatever its gates have
	}
	var all []*finding
	for _, closed := range closed {
		for _, g := range s.gates() {
			switch {
			case g.Name() != closed.Gate:
			case closed.found != nil:
				all = append(all, closed.found)
			default:
				all = append(all, &finding{gate: g.Name(), kind: gate.KindOf(closed), said: waited(g, closed), ask: r.gateInquiry(s.stage, g)})
			}
		}
	}
	if step := (*stepError)(nil); len(all) == 0 && errors.As(err, &step) {
		all = append(all, &finding{said: ran(s.name, step), ask: r.stepInquiry(s, step)})
	}
	return all
}

// closedNow asks a stage's gates once more.
func (r *run) closedNow(ctx context.Context, s subject) []*GateError {
	var closed []*GateError
	for i, err := range each(s.gates(), func(g *config.Gate) error { return r.askOne(ctx, s.stage, g) }) {
		if err != nil {
			closed = append(closed, &GateError{Gate: s.gates()[i].Name(), Err: err})
		}
	}
	return closed
}

func (s subject) gates() []*config.Gate {
	if s.stage == nil {
		return nil
	}
	return s.stage.Gates
}

// closedGates returns the gates that an error joins.
func closedGates(err error) []*GateError {
	if closed, ok := err.(*GateError); ok { //nolint:errorlint // each level is looked at in turn
		return []*GateError{closed}
	}
	switch wrapping := err.(type) { //nolint:errorlint // likewise
	case interface{ Unwrap() []error }:
		var all []*GateError
		for _, e := range wrapping.Unwrap() {
			all = append(all, closedGates(e)...)
		}
		return all
	case interface{ Unwrap() error }:
		return closedGates(wrapping.Unwrap())
	}
	return nil
}

// waited says what was waited for, what was there instead and since when.
func waited(g *config.Gate, closed *GateError) event.Diagnosis {
	d := event.Diagnosis{Since: time.Now(), Seen: strings.TrimPrefix(closed.Error(), "gate "+g.Name()+": ")}
	d.Waited = fmt.Sprintf("gate %s: %s", g.Name(), g.Type.Summary)
	if timeout := new(gate.TimeoutError); errors.As(closed, &timeout) {
		d.Waited = fmt.Sprintf("gate %s, for %s: %s", g.Name(), timeout.Timeout, g.Type.Summary)
		d.Since = d.Since.Add(-timeout.Since)
		d.Seen = "no attempt finished"
		if timeout.Last != nil {
			d.Seen = timeout.Last.Error()
		}
	}
	return d
}

// together makes one finding of those that have the same cause: a Pod that does
// not start closes several gates, and is one thing to mend.
func together(findings []*finding) []*finding {
	var all []*finding
	for _, f := range findings {
		same := slices.IndexFunc(all, func(x *finding) bool { return x.said.Cause == f.said.Cause })
		if f.said.Cause == "" || same < 0 {
			all = append(all, f)
			continue
		}
		first := all[same]
		first.said.Waited += "; gate " + f.gate + " waits for the same"
		files := map[string][]byte{}
		maps.Copy(files, f.found.Files)
		maps.Copy(files, first.found.Files)
		first.found.Files = files
	}
	return all
}

// empty reports whether there is nothing to say that Terraform has not said itself.
func (f *finding) empty() bool {
	return f.gate == "" && f.found.Cause == "" && len(f.found.Files) == 0
}
