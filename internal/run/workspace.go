package run

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/event"
	"github.com/ephemeral-castle/castle/internal/state"
	"github.com/ephemeral-castle/castle/internal/terraform"
)

// Apply applies a plan, or without one the configuration. It writes an intent to disk first, and clears
// it only when the apply succeeded and the new state has a snapshot.
func (w *Workspace) Apply(ctx context.Context, r *Run, dir *state.Stage, plan *terraform.Plan,
	changes []state.Intended) error {
	intent, err := dir.Intent().Begin(r.ID, changes)
	if err != nil {
		if plan != nil {
			err = errors.Join(err, plan.Discard())
		}
		return fmt.Errorf("cannot record the intended changes, so nothing was changed: %w", err)
	}
	w.intent.Store(intent)
	err = w.Root.Apply(ctx, plan)
	w.intent.Store(nil)
	noted := intent.Close()
	if err = errors.Join(err, dir.Snapshot()); err != nil {
		return errors.Join(err, noted)
	}
	return dir.Intent().Clear()
}

// note records in the intent the progress of a change.
func (w *Workspace) note(c terraform.Change) {
	intent := w.intent.Load()
	phases := map[terraform.Phase]state.Phase{
		terraform.Started: state.Started, terraform.Done: state.Done, terraform.Failed: state.Failed,
	}
	if phase := phases[c.Phase]; intent != nil && phase != "" {
		intent.Note(c.Address, c.Action, phase)
	}
}

// noteUnsure records in the intent that a failed change may still have created something: the answer was
// lost, or Terraform was interrupted.
func (w *Workspace) noteUnsure(d terraform.Diagnostic) {
	if intent := w.intent.Load(); intent != nil && d.Address != "" && !d.AlreadyExists() {
		intent.Note(d.Address, "create", state.Unsure)
	}
}

// Override returns how castle wires a stage's module to the cluster.
func (r *Run) Override(s *config.Stage) terraform.Override {
	return terraform.Override{InCluster: s.InCluster, Kubeconfig: r.Cluster.Dir.Kubeconfig()}
}

// workspaces lists the open workspaces of a run, for an interrupt or a kill.
type workspaces struct {
	mu  sync.Mutex
	all []*Workspace
}

func (r *workspaces) add(w *Workspace) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, w)
}

// Workspace is one stage's root module with its log and intent.
type Workspace struct {
	Root         *terraform.Root
	stage, layer string
	log          io.Closer
	intent       atomic.Pointer[state.IntentLog] // of the running apply
}

// Close closes the stage's log.
func (w *Workspace) Close() error { return w.log.Close() }

// OpenWorkspace returns a stage's workspace, connected to its log and the run's events.
func (r *Run) OpenWorkspace(stage, layer string) (*Workspace, error) {
	binary, err := r.Binary()
	if err != nil {
		return nil, err
	}
	file := &lazyLog{open: func() (io.WriteCloser, error) { return r.Files.Log(stage) }}
	log := r.Cluster.Masker.Writer(file)
	dir := r.Cluster.Dir.Stage(stage)
	w := &Workspace{stage: stage, layer: layer, log: closers{log, file}}
	w.Root = &terraform.Root{
		Binary: binary, Dir: dir.Work(), StatePath: dir.StatePath(),
		PluginCache: r.Cluster.Shared(".plugins"), Env: r.Cluster.Options.Environ, Run: r.ID, Log: log,
		OnError: w.noteUnsure,
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
			r.Emit(e)
		},
	}
	r.workspaces.add(w)
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

func (r *workspaces) kill(ctx context.Context) error {
	r.mu.Lock()
	all := slices.Clone(r.all)
	r.mu.Unlock()
	var errs []error
	for _, root := range all {
		errs = append(errs, root.Root.Kill(ctx))
	}
	return errors.Join(errs...)
}
