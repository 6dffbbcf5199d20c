package castle

import (
	"context"
	"errors"
	"io"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/ephemeral-castle/castle/internal/event"
	"github.com/ephemeral-castle/castle/internal/state"
	"github.com/ephemeral-castle/castle/internal/terraform"
)

// roots remembers the root modules that a run works on, for whoever interrupts it.
type roots struct {
	mu  sync.Mutex
	all []*workshop
}

func (r *roots) add(w *workshop) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, w)
}

// workshop is one stage's root module with its log.
type workshop struct {
	root         *terraform.Root
	stage, layer string
	log          io.Closer
	intent       atomic.Pointer[state.IntentLog] // of the apply that goes on
}

func (w *workshop) Close() error { return w.log.Close() }

// open returns the root module of a stage, with its log and its events wired up.
func (r *run) open(stage, layer string) (*workshop, error) {
	binary, err := r.binary()
	if err != nil {
		return nil, err
	}
	file := &lateLog{open: func() (io.WriteCloser, error) { return r.files.Log(stage) }}
	log := r.masker.Writer(file)
	dir := r.dir.Stage(stage)
	w := &workshop{stage: stage, layer: layer, log: closers{log, file}}
	w.root = &terraform.Root{
		Binary: binary, Dir: dir.Work(), StatePath: dir.StatePath(),
		PluginCache: r.shared(".plugins"), Env: r.options.Environ, Run: r.id, Log: log,
		OnError: w.doubt,
		OnResource: func(c terraform.Change) {
			w.note(c)
			e := event.Event{Layer: layer, Stage: stage, Address: c.Address, Action: c.Action}
			switch c.Phase {
			case terraform.Started:
				e.Kind = event.ResourceStarted
			case terraform.Done, terraform.Failed:
				e.Kind, e.Text, e.Seconds = event.Resource, string(c.Phase), c.Seconds
			default:
				return
			}
			r.emit(e)
		},
	}
	r.roots.add(w)
	return w, nil
}

type closers []io.Closer

func (c closers) Close() error {
	var errs []error
	for _, x := range c {
		errs = append(errs, x.Close())
	}
	return errors.Join(errs...)
}

func (r *roots) kill(ctx context.Context) error {
	r.mu.Lock()
	all := slices.Clone(r.all)
	r.mu.Unlock()
	var errs []error
	for _, root := range all {
		errs = append(errs, root.root.Kill(ctx))
	}
	return errors.Join(errs...)
}
