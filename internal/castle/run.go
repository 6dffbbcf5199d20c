package castle

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/ephemeral-castle/castle/internal/event"
	"github.com/ephemeral-castle/castle/internal/state"
	"github.com/ephemeral-castle/castle/internal/terraform"
)

// run is one command that holds the cluster's lock and keeps a journal.
type run struct {
	*Castle
	id         string
	files      *state.Run
	lock       *state.Lock
	journal    *state.Journal
	said       *outputs
	roots      roots
	interrupts interrupts
	slots      chan struct{} // one for each Terraform process that may run
	binary     func() (terraform.Binary, error)
	began      time.Time
	emitting   sync.Mutex
	atWork     func() []event.Operation // what Terraform is at
}

// observe returns a run that only looks: it holds no lock and keeps no journal.
func (c *Castle) observe(ctx context.Context) *run {
	return &run{Castle: c, said: newOutputs(c.masker), binary: c.findBinary(ctx, func(string) {})}
}

// begin takes the cluster's lock. If its holder died, whatever survives of that
// run is ended first: two writers must never be beside each other.
func (c *Castle) begin(ctx context.Context, kind string) (*run, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	r, err := c.beginRun(ctx, kind)
	return r, fullDisk(err, c.dir.Path())
}

func (c *Castle) beginRun(ctx context.Context, kind string) (*run, error) {
	files, err := c.dir.NewRun(kind)
	if err != nil {
		return nil, err
	}
	lock, err := c.dir.Lock(files.ID)
	if err != nil {
		return nil, err
	}
	r := &run{
		Castle: c, id: files.ID, files: files, lock: lock, said: newOutputs(c.masker),
		slots: make(chan struct{}, c.parallelism()), began: time.Now(),
	}
	r.atWork = r.roots.works
	r.binary = c.findBinary(ctx, r.notice)
	r.activate()
	if err = r.takeOver(ctx); err == nil {
		r.journal, err = files.Journal()
	}
	if err != nil {
		r.deactivate()
		return nil, errors.Join(err, lock.Unlock())
	}
	r.emit(event.Event{Kind: event.RunStarted, Text: kind + " " + c.Name()})
	return r, nil
}

func (r *run) takeOver(ctx context.Context) error {
	notice, err := r.lock.TakeOver(ctx)
	if err == nil && notice != "" {
		r.notice(notice)
	}
	return err
}

// end closes the journal and releases the lock. It returns err with whatever
// goes wrong on the way, masked.
func (r *run) end(err error) error {
	r.deactivate()
	e := event.Event{Kind: event.RunEnded, Seconds: time.Since(r.began).Seconds(), Text: "ok"}
	if err != nil {
		e.Text = err.Error()
	}
	r.emit(e)
	return r.conceal(fullDisk(errors.Join(err, r.journal.Close(), r.lock.Unlock()), r.dir.Path()))
}

// emit masks an event, keeps it in the journal and shows it. Events that a
// later run relies on are on disk when emit returns.
func (r *run) emit(e event.Event) {
	r.emitting.Lock()
	defer r.emitting.Unlock()
	e.Time, e.Run, e.Text = time.Now(), r.id, r.masker.Hide(e.Text)
	e.Diagnosis = r.masked(e.Diagnosis)
	if r.journal != nil {
		if err := r.journal.Append(e, decisive(e.Kind)); err != nil && e.Kind != event.Notice && !errors.Is(err, os.ErrClosed) {
			defer r.report(event.Event{Time: e.Time, Run: r.id, Kind: event.Notice, Text: "journal: " + err.Error()})
		}
	}
	r.report(e)
}

func (r *run) report(e event.Event) {
	if r.options.Reporter != nil {
		r.options.Reporter.Report(e)
	}
}

func decisive(k event.Kind) bool {
	switch k {
	case event.GateClosed, event.ReconcileTriggered, event.GateOpen, event.Notice, event.ResourceStarted, event.Resource,
		event.Interrupted, event.Waiting:
		return false
	}
	return true
}

func (r *run) notice(text string) { r.emit(event.Event{Kind: event.Notice, Text: text}) }

// step runs one step of a stage between two events, so that its time is known.
func (r *run) step(stage, layer, name string, do func() error) error {
	e := event.Event{Layer: layer, Stage: stage, Step: name}
	began := time.Now()
	e.Kind = event.StepStarted
	r.emit(e)
	err := do()
	e.Kind, e.Seconds = event.StepEnded, time.Since(began).Seconds()
	if err != nil {
		e.Text = err.Error()
	}
	r.emit(e)
	return err
}

// findBinary returns a function that finds Terraform when it is first needed.
func (c *Castle) findBinary(ctx context.Context, notice func(string)) func() (terraform.Binary, error) {
	return sync.OnceValues(func() (terraform.Binary, error) {
		return terraform.Find(ctx, c.shared(".terraform"), notice)
	})
}

// shared is a folder of the state root that all clusters use.
func (c *Castle) shared(name string) string {
	return filepath.Join(filepath.Dir(filepath.Dir(c.dir.Path())), name)
}

// slot waits for the right to run a Terraform process; the caller gives it back.
func (r *run) slot(ctx context.Context) (release func(), err error) {
	select {
	case r.slots <- struct{}{}:
		return func() { <-r.slots }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}
