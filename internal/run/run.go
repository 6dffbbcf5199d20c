// Package run is one locked run of one cluster. It holds the journal and events, the workspaces in which
// Terraform works, the outputs of the stages, and the steps that operations share, such as retries and
// interrupts. It sends masked events to the Reporter and the journal, and never writes to a terminal. Observe
// returns a run without a lock, for commands that only read.
package run

import (
	"cmp"
	"context"
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ephemeral-castle/castle/internal/atomicfile"
	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/event"
	"github.com/ephemeral-castle/castle/internal/process"
	"github.com/ephemeral-castle/castle/internal/providers"
	"github.com/ephemeral-castle/castle/internal/state"
	"github.com/ephemeral-castle/castle/internal/terraform"
)

const defaultParallelism = 4

// Run is one command that holds the cluster's lock and keeps a journal.
type Run struct {
	Cluster    *cluster.Cluster
	ID         string
	Files      *state.Run
	lock       *Lock
	release    func() error // of lock
	Journal    *state.Journal
	Outputs    *Outputs
	Providers  *providers.Shared
	workspaces workspaces
	slots      chan struct{} // one for each Terraform process that may run
	Binary     func() (terraform.Binary, error)
	Began      time.Time
	cause      func() error // why the command was interrupted, if it was
	emitting   sync.Mutex
	results    map[string]event.Result // of the stages that have ended

	running    func() []event.Operation // Terraform's current operations
	interrupts atomic.Int64
	ended      chan struct{} // closed when the run has ended
}

// Observe returns a run for reading only: it holds no lock and keeps no journal.
func Observe(ctx context.Context, c *cluster.Cluster) *Run {
	r := &Run{Cluster: c, Outputs: NewOutputs(c.Masker), Binary: c.FindBinary(ctx, func(string) {})}
	r.Providers = r.providers()
	r.Outputs.births, _ = c.Births().Value() //nolint:errcheck // then the gates of data are closed
	return r
}

// Begin takes the cluster's lock. If the previous holder died, it first ends the processes that are left of
// that run, so that there is only one writer. Then it calls cleanUp, which is applied.CleanUp. The run works
// with the context that Begin returns: it is cancelled when another run has taken over the lock.
func Begin(ctx context.Context, c *cluster.Cluster, kind string, cleanUp func(*Run) error) (
	_ context.Context, _ *Run, err error) {
	if ctx.Err() != nil {
		return ctx, nil, context.Cause(ctx)
	}
	files := c.Dir.NewRun(kind)
	r := &Run{Cluster: c, ID: files.ID, Files: files, Outputs: NewOutputs(c.Masker),
		slots: make(chan struct{}, cmp.Or(c.Options.Parallelism, defaultParallelism)), Began: time.Now()}
	r.running, r.Providers = r.workspaces.running, r.providers()
	interruptible := ctx
	r.cause = func() error { return context.Cause(interruptible) }
	r.Binary = c.FindBinary(ctx, r.Notice)
	r.activate()
	ctx, r.lock, err = TakeLock(ctx, c.Dir, c.Copy, files.ID, r.Notice)
	if err != nil {
		r.deactivate()
		return ctx, nil, err
	}
	r.release = func() error { return r.lock.Release(ctx, "the end of the "+kind, c.Config.Snapshots) }
	err = c.CheckProgram()
	if err == nil && c.Config.Dir != "" {
		err = atomicfile.Sweep(c.ConfigsDir()) // a kubeconfig is a secret
	}
	if err == nil {
		r.Journal, err = files.Journal()
	}
	if err == nil {
		r.Outputs.births, err = c.Births().Value()
	}
	if err != nil {
		r.deactivate()
		return ctx, nil, errors.Join(err, r.release())
	}
	r.Emit(event.Event{Kind: event.RunStarted, Text: kind + " " + c.Name(), By: cluster.Self(),
		Command: c.Options.CommandLine})
	if err := cleanUp(r); err != nil {
		return ctx, nil, r.End(err)
	}
	return ctx, r, nil
}

// BeginChecked is Begin for a command that follows the configuration: it checks that first, and warns.
func BeginChecked(ctx context.Context, c *cluster.Cluster, kind string, cleanUp func(*Run) error) (
	context.Context, *Run, error) {
	warnings, err := c.CheckConfig()
	if err != nil {
		return ctx, nil, err
	}
	ctx, r, err := Begin(ctx, c, kind, cleanUp)
	if err != nil {
		return ctx, nil, err
	}
	if err := c.CheckSources(); err != nil {
		return ctx, nil, r.End(err)
	}
	for _, w := range warnings {
		r.Notice(w)
	}
	return ctx, r, nil
}

// End closes the journal and releases the lock. It returns err, joined with the errors of both, masked.
func (r *Run) End(err error) error {
	r.deactivate()
	if process.Getenv(r.Cluster.Options.Environ, "CASTLE_LAB_REPOSITORY") == "" { // else it is a copy
		r.Providers.Report()
	}
	if lost := r.lock.Lost(); lost != nil {
		err = errors.Join(lost, err)
	}
	e := event.Event{Kind: event.RunEnded, Seconds: time.Since(r.Began).Seconds(), Text: event.RunOK}
	if err != nil {
		e.Text = err.Error()
	}
	e.Ending = r.ending(err)
	r.Emit(e)
	sockets := os.RemoveAll(process.RuntimeDir(r.ID))
	if err = r.Cluster.MaskError(err); err != nil {
		err = &EndedError{err}
	}
	return errors.Join(err, r.Cluster.MaskError(errors.Join(sockets, r.Journal.Close(), r.release())))
}

// Emit masks an event, writes it to the journal and reports it. What a later run relies on is on disk then.
func (r *Run) Emit(e event.Event) {
	r.emitting.Lock()
	defer r.emitting.Unlock()
	e.Time, e.Run = time.Now(), r.ID
	e = e.Masked(r.Cluster.Masker.Hide)
	if result, ends := e.Kind.Ends(); ends && e.Stage != "" {
		if r.results == nil {
			r.results = map[string]event.Result{}
		}
		r.results[e.Stage] = result
	}
	reported := []event.Event{e}
	if r.Journal != nil {
		if err := r.Journal.Append(e); err != nil && e.Kind != event.Notice && !errors.Is(err, os.ErrClosed) {
			text := "journal: " + err.Error()
			reported = append(reported, event.Event{Time: e.Time, Run: r.ID, Kind: event.Notice, Text: text})
		}
	}
	for _, e := range reported {
		if r.Cluster.Options.Reporter != nil {
			r.Cluster.Options.Reporter.Report(e)
		}
	}
}

// Notice reports a text to the user and keeps it in the journal.
func (r *Run) Notice(text string) { r.Emit(event.Event{Kind: event.Notice, Text: text}) }

// Step runs one step of a stage between two events, which record its duration.
func (r *Run) Step(stage, layer, name string, do func() error) error {
	return r.step(event.Event{Layer: layer, Stage: stage, Step: name}, do)
}

// GatesStep runs the step in which a stage waits for so many gates.
func (r *Run) GatesStep(stage, layer string, gates int, do func() error) error {
	return r.step(event.Event{Layer: layer, Stage: stage, Step: "gates", Total: gates}, do)
}

// step runs the step that e names.
func (r *Run) step(e event.Event, do func() error) error {
	began := time.Now()
	e.Kind = event.StepStarted
	r.Emit(e)
	err := do()
	e.Kind, e.Seconds, e.Total = event.StepEnded, time.Since(began).Seconds(), 0
	if err != nil {
		e.Text = err.Error()
	}
	r.Emit(e)
	return err
}

// Slot waits until a Terraform process may run. The caller calls release afterwards.
func (r *Run) Slot(ctx context.Context) (release func(), err error) {
	select {
	case r.slots <- struct{}{}:
		return func() { <-r.slots }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
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

// StageNeeds returns the stages that a stage needs, as the edges of a graph.
func StageNeeds(s *config.Stage) []*config.Stage { return s.Needs }
