// Package run is one locked run of one cluster. It holds the journal and events, the workspaces in which
// Terraform works, and the outputs of the stages. It binds gates and preflights to them.
//
// A run decides nothing: the operations do. It holds the steps that all of them share, such as recording a
// stage before a change, retries and interrupts. It never writes to a terminal: it sends masked events to
// the Reporter and the journal.
//
// Observe returns a run without a lock, for commands that only read.
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
	"github.com/ephemeral-castle/castle/internal/event"
	"github.com/ephemeral-castle/castle/internal/state"
	"github.com/ephemeral-castle/castle/internal/terraform"
)

const defaultParallelism = 4

// Run is one command that holds the cluster's lock and keeps a journal.
type Run struct {
	Cluster    *cluster.Cluster
	ID         string
	Files      *state.Run
	lock       *state.Lock
	Journal    *state.Journal
	Outputs    *Outputs
	workspaces workspaces
	slots      chan struct{} // one for each Terraform process that may run
	Binary     func() (terraform.Binary, error)
	Began      time.Time
	emitting   sync.Mutex

	running    func() []event.Operation // Terraform's current operations
	interrupts atomic.Int64
	ended      chan struct{} // closed when the run has ended
}

// Observe returns a run for reading only: it holds no lock and keeps no journal.
func Observe(ctx context.Context, c *cluster.Cluster) *Run {
	return &Run{Cluster: c, Outputs: NewOutputs(c.Masker), Binary: c.FindBinary(ctx, func(string) {})}
}

// Begin takes the cluster's lock. If the previous holder died, it first ends the processes that are left
// of that run, so that there is only one writer.
func Begin(ctx context.Context, c *cluster.Cluster, kind string) (_ *Run, err error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	files := c.Dir.NewRun(kind)
	lock, err := c.Dir.Lock(files.ID)
	if err != nil {
		return nil, err
	}
	r := &Run{
		Cluster: c, ID: files.ID, Files: files, lock: lock, Outputs: NewOutputs(c.Masker),
		slots: make(chan struct{}, cmp.Or(c.Options.Parallelism, defaultParallelism)), Began: time.Now(),
	}
	r.running = r.workspaces.running
	r.Binary = c.FindBinary(ctx, r.Notice)
	r.activate()
	notice, err := lock.TakeOver(ctx)
	if notice != "" {
		r.Notice(notice)
	}
	if err == nil && c.Config.Dir != "" {
		err = atomicfile.Sweep(c.ConfigsDir()) // a kubeconfig is a secret
	}
	if err == nil {
		r.Journal, err = files.Journal()
	}
	if err != nil {
		r.deactivate()
		return nil, errors.Join(err, lock.Unlock())
	}
	r.Emit(event.Event{Kind: event.RunStarted, Text: kind + " " + c.Name()})
	if err := r.repair(); err != nil {
		return nil, r.End(err)
	}
	return r, nil
}

// BeginChecked is Begin for a command that follows the configuration: it checks that first, and reports the
// warnings.
func BeginChecked(ctx context.Context, c *cluster.Cluster, kind string) (*Run, error) {
	warnings, err := c.CheckConfig()
	if err != nil {
		return nil, err
	}
	r, err := Begin(ctx, c, kind)
	if err != nil {
		return nil, err
	}
	for _, w := range warnings {
		r.Notice(w)
	}
	return r, nil
}

// End closes the journal and releases the lock. It returns err, joined with the errors of both, masked.
func (r *Run) End(err error) error {
	r.deactivate()
	e := event.Event{Kind: event.RunEnded, Seconds: time.Since(r.Began).Seconds(), Text: event.RunOK}
	if err != nil {
		e.Text = err.Error()
	}
	r.Emit(e)
	return r.Cluster.MaskError(errors.Join(err, r.Journal.Close(), r.lock.Unlock()))
}

// Emit masks an event, writes it to the journal and reports it. Events that a later run relies on are on
// disk when Emit returns.
func (r *Run) Emit(e event.Event) {
	r.emitting.Lock()
	defer r.emitting.Unlock()
	e.Time, e.Run = time.Now(), r.ID
	e = e.Masked(r.Cluster.Masker.Hide)
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
	e := event.Event{Layer: layer, Stage: stage, Step: name}
	began := time.Now()
	e.Kind = event.StepStarted
	r.Emit(e)
	err := do()
	e.Kind, e.Seconds = event.StepEnded, time.Since(began).Seconds()
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
