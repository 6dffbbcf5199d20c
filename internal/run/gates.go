package run

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/event"
	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/state"
)

// GateError is the error of a gate that did not open.
type GateError struct {
	Gate string
	Err  error

	Finding *Finding // its diagnosis at the timeout; may be nil
}

func (e *GateError) Error() string { return e.Err.Error() }

func (e *GateError) Unwrap() error { return e.Err }

// lastAnswer is the last answer of the gate's check; nil if none finished.
func (e *GateError) lastAnswer() error {
	if out, is := errors.AsType[*gate.TimeoutError](e.Err); is {
		return out.Last
	}
	return e.Err
}

// reason is the error without the gate's name.
func (e *GateError) reason() string { return strings.TrimPrefix(e.Error(), "gate "+e.Gate+": ") }

// BindGate binds a stage's gate to the cluster and to the outputs that are known so far.
func BindGate(r *Run, s *config.Stage, g *config.Gate) (gate.Gate, error) {
	values, diags := g.Values(r.Outputs.Scope(s))
	if diags.HasErrors() {
		return gate.Gate{}, diags
	}
	return g.Type.New(g.Name(), r.Outputs.Target(), values)
}

// FirstClosedGate checks each gate once, in parallel. It returns the first closed one in the order of the
// stage's file, or nil if all are open.
func FirstClosedGate(ctx context.Context, r *Run, s *config.Stage, gates []*config.Gate) *GateError {
	for i, err := range Each(gates, func(g *config.Gate) error { return CheckGate(ctx, r, s, g) }) {
		if err != nil {
			return &GateError{Gate: gates[i].Name(), Err: err}
		}
	}
	return nil
}

// CheckGate checks one gate once.
func CheckGate(ctx context.Context, r *Run, s *config.Stage, g *config.Gate) error {
	bound, err := BindGate(r, s, g)
	if err != nil {
		return err
	}
	return bound.Check(ctx)
}

// WaitGates waits until all gates are open. The first that fails ends the wait: nothing can make the stage
// ready any more. The others are then checked one last time, for the diagnosis.
func WaitGates(ctx context.Context, r *Run, s *config.Stage, gates []*config.Gate) error {
	if len(gates) == 0 {
		return nil
	}
	return r.GatesStep(s.Name, s.Layer, len(gates), func() error {
		return waitTogether(gates, func(g *config.Gate, failed func() bool) error {
			return waitGate(ctx, r, s, g, failed)
		})
	})
}

// waitTogether waits for gates in parallel until one fails. wait calls failed when its gate does, which
// reports whether it is the first.
func waitTogether(gates []*config.Gate, wait func(g *config.Gate, failed func() bool) error) error {
	gaveUp, once := make(chan struct{}), atomic.Bool{}
	failed := func() (first bool) {
		if first = once.CompareAndSwap(false, true); first {
			close(gaveUp)
		}
		return first
	}
	return joinGates(Each(gates, func(g *config.Gate) error {
		together := *g
		together.Policy.GiveUp = gaveUp
		return wait(&together, failed)
	}))
}

// GatesError is the error of a stage whose gates did not open.
type GatesError struct {
	Failed []*GateError // they timed out first, or can never open
	Others []*GateError // closed, too, and not waited for any longer
}

// mostNamed is how many gates a message names; it counts more of them.
const mostNamed = 3

func (e *GatesError) Error() string {
	var lines, names []string
	for _, failed := range e.Failed {
		lines = append(lines, failed.Error())
	}
	for _, other := range e.Others {
		names = append(names, other.Gate)
	}
	switch n := len(names); {
	case n > mostNamed:
		lines = append(lines, fmt.Sprintf("castle no longer waits for %d further gates", n))
	case n > 0:
		lines = append(lines, "castle no longer waits for "+strings.Join(names, ", "))
	}
	return strings.Join(lines, "\n")
}

// Unwrap returns the errors of all gates.
func (e *GatesError) Unwrap() []error {
	var all []error
	for _, one := range slices.Concat(e.Failed, e.Others) {
		all = append(all, one)
	}
	return all
}

// joinGates joins the results of a stage's gates. The error of a run that was stopped stands beside them.
func joinGates(results []error) error {
	var rest []error
	closed := &GatesError{}
	for _, err := range results {
		one, is := err.(*GateError) //nolint:errorlint // waitBound returns it as it is
		switch {
		case !is:
			rest = append(rest, err)
		case isGivenUp(one):
			closed.Others = append(closed.Others, one)
		default:
			closed.Failed = append(closed.Failed, one)
		}
	}
	if len(closed.Failed)+len(closed.Others) > 0 {
		rest = append(rest, closed)
	}
	return errors.Join(rest...)
}

// WaitGate waits until a gate is open or fails, and diagnoses a failure.
func WaitGate(ctx context.Context, r *Run, s *config.Stage, g *config.Gate) error {
	return waitGate(ctx, r, s, g, func() bool { return true })
}

func waitGate(ctx context.Context, r *Run, s *config.Stage, g *config.Gate, failed func() bool) error {
	bound, err := BindGate(r, s, g)
	if err != nil {
		bound = gate.Gate{Name: g.Name(), Check: func(context.Context) error { return gate.Permanent(err) }}
	}
	return waitBound(ctx, r, s, g, bound, failed)
}

// waitBound calls failed before it diagnoses a gate that failed, which takes a while. failed reports whether
// the gate is the stage's first to fail. One that times out after that was not waited for any longer.
func waitBound(ctx context.Context, r *Run, s *config.Stage, g *config.Gate, bound gate.Gate,
	failed func() bool) error {
	of := event.Event{Layer: s.Layer, Stage: s.Name, Gate: g.Name()}
	err := gate.Wait(ctx, bound, g.Policy, r.listener(of, g.Policy.EffectiveTimeout()))
	if err == nil || ctx.Err() != nil { // the run was stopped, not the gate closed
		return err
	}
	closed := &GateError{Gate: g.Name(), Err: err}
	if !isGivenUp(closed) {
		first := failed()
		if out, is := errors.AsType[*gate.TimeoutError](err); is && !first {
			out.GaveUp = true
		} else {
			of.Kind, of.Text = event.GateFailed, closed.reason()
			r.Emit(of)
		}
	}
	closed.Finding = diagnoseNow(ctx, g, bound, closed)
	return closed
}

// isGivenUp reports whether a gate was closed when another one failed.
func isGivenUp(err error) bool {
	e, is := errors.AsType[*gate.TimeoutError](err)
	return is && e.GaveUp
}

// appliedGates is the document of a stage's gates as its last good apply left them. The label of each is the
// gate's whole name.
func appliedGates(dir *state.Stage) state.Document[[]state.RecordedCheck] {
	return state.StageDocument[[]state.RecordedCheck](dir, "gates")
}

// RecordGates records the gates of a stage, with the values that they were checked with: a later
// configuration may change both. The fingerprint, which is written next, brings them to the disk.
func RecordGates(r *Run, s *config.Stage) error {
	all := []state.RecordedCheck{}
	for _, g := range s.Gates {
		values, diags := g.Values(r.Outputs.Scope(s))
		if diags.HasErrors() {
			return diags
		}
		check, err := state.NewRecordedCheck(g.Type.Name, g.Name(), values)
		if err != nil {
			return err
		}
		all = append(all, check)
	}
	return appliedGates(r.Cluster.Dir.Stage(s.Name)).WritePending(all)
}

// AppliedGates returns the recorded gates of a stage; nil if there is no record that this castle can check.
func AppliedGates(r *Run, s *config.Stage) []gate.Gate {
	recorded, err := appliedGates(r.Cluster.Dir.Stage(s.Name)).Value()
	if err != nil || recorded == nil { // damaged or lost: the configured ones have to do
		return nil
	}
	all := []gate.Gate{}
	types := cluster.GateTypes()
	for _, check := range recorded {
		at := slices.IndexFunc(types, func(t gate.Type) bool { return t.Name == check.Type })
		if at < 0 {
			return nil
		}
		values, err := check.Decode()
		if err != nil {
			return nil
		}
		bound, err := types[at].New(check.Label, r.Outputs.Target(), values)
		if err != nil {
			return nil
		}
		all = append(all, bound)
	}
	return all
}

// DiagnosisTime bounds the diagnosis of one failed stage.
const DiagnosisTime = 15 * time.Second

// Bounded runs a diagnosis, and abandons one that does not return in time.
func Bounded(ctx context.Context, inspect func(context.Context) gate.Diagnosis) gate.Diagnosis {
	found := make(chan gate.Diagnosis, 1)
	go func() { found <- inspect(ctx) }()
	select {
	case d := <-found:
		return d
	case <-ctx.Done():
	}
	if !errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return gate.Diagnosis{} // an interrupt does not wait
	}
	select {
	case d := <-found: // it was stopped and has a partial result
		return d
	case <-time.After(time.Second):
		return gate.Diagnosis{}
	}
}

// Finding is a closed gate or failed step, and its diagnosis.
type Finding struct {
	Report  event.Diagnosis
	Gate    string                               // its name; empty for a step of Terraform's
	Same    []string                             // further gates that are closed for the same cause
	Follow  int                                  // gates that are closed in consequence
	Kind    gate.Kind                            // of the gate's last answer
	Inspect func(context.Context) gate.Diagnosis // nil once Found is set
	Found   gate.Diagnosis
}

// NewFinding returns the finding of a closed gate before its diagnosis.
func NewFinding(g *config.Gate, closed *GateError) *Finding {
	return &Finding{Gate: g.Name(), Kind: gate.KindOf(closed), Report: waited(g, closed)}
}

// diagnoseNow diagnoses a gate when it times out: the stage's other gates may go on for minutes, and the
// cause may be gone by then.
func diagnoseNow(ctx context.Context, g *config.Gate, bound gate.Gate, closed *GateError) *Finding {
	f := NewFinding(g, closed)
	if bound.Diagnose != nil {
		ctx, stop := context.WithTimeout(ctx, DiagnosisTime)
		defer stop()
		f.Found = Bounded(ctx, func(ctx context.Context) gate.Diagnosis {
			return bound.Diagnose(ctx, closed.lastAnswer())
		})
	}
	return f
}

// waited reports the gate, its last answer and since when that was so.
func waited(g *config.Gate, closed *GateError) event.Diagnosis {
	d := event.Diagnosis{Since: time.Now(), Seen: closed.reason()}
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

// Empty reports whether the finding adds nothing to Terraform's own error.
func (f *Finding) Empty() bool {
	return f.Gate == "" && f.Found.Cause == "" && len(f.Found.Files) == 0
}

// listener turns the progress of a wait into events; of names the stage and gate.
func (r *Run) listener(of event.Event, timeout time.Duration) gate.Listener {
	say := func(kind event.Kind, text string) {
		e := of
		e.Kind, e.Text = kind, text
		r.Emit(e)
	}
	return gate.Listener{
		Answer: func(closed error) {
			if closed == nil {
				say(event.GateOpen, "")
				return
			}
			e := of
			e.Kind, e.Text, e.TimeoutSeconds = event.GateClosed, closed.Error(), timeout.Seconds()
			r.Emit(e)
		},
		Reconcile: func(did string, err error) {
			if did != "" {
				say(event.ReconcileTriggered, did)
			}
			if err != nil {
				say(event.ReconcileTriggered, "cannot trigger a reconcile: "+err.Error())
			}
		},
	}
}

// Each calls do for all items in parallel and returns the results in the order of the items.
func Each[T, R any](items []T, do func(T) R) []R {
	answers := make([]R, len(items))
	var all sync.WaitGroup
	for i, item := range items {
		all.Go(func() { answers[i] = do(item) })
	}
	all.Wait()
	return answers
}

// TimeoutError is the cause of a stage's context that ended because the stage's time was up.
type TimeoutError struct{ After time.Duration }

func (e TimeoutError) Error() string { return "timed out after " + e.After.String() }

// StageNeeds returns the stages that a stage needs, as the edges of a graph.
func StageNeeds(s *config.Stage) []*config.Stage { return s.Needs }

// DeferredGates returns the gates that wait for stages other than their own.
func DeferredGates(s *config.Stage) []*config.Gate {
	return slices.DeleteFunc(slices.Clone(s.Gates), func(g *config.Gate) bool { return len(g.Needs) == 0 })
}

// ImmediateGates returns the gates that castle checks as soon as their stage is applied.
func ImmediateGates(s *config.Stage) []*config.Gate {
	return slices.DeleteFunc(slices.Clone(s.Gates), func(g *config.Gate) bool { return len(g.Needs) > 0 })
}
