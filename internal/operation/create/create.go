// Package create raises stages. A create is a walk over tasks: a stage is one task; a
// preflight is one of its own, so that it runs before any stage changes anything; and
// a deferred gate, which waits for other stages, is one too. Gates alone decide what
// is ready, never the end of Terraform.
package create

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/event"
	"github.com/ephemeral-castle/castle/internal/graph"
	"github.com/ephemeral-castle/castle/internal/run"
	"github.com/ephemeral-castle/castle/internal/run/diagnose"
	"github.com/ephemeral-castle/castle/internal/run/review"
)

// CreateOptions narrow and sharpen a create.
type Options struct {
	Selection cluster.Selection
	Refresh   bool // apply even what is up to date
	// Adopt takes over what is the cluster's own by name, tags and node, though
	// castle does not know that it made it.
	Adopt bool
	// Plan is the file of a saved plan, which decides on everything else; Agree is
	// not asked then, but if it is nil a stage that could not be planned may do anything.
	Plan string
	// Agree is asked before a stage replaces or destroys anything that it has made,
	// for one stage at a time; nil: everybody agrees.
	Confirm func(context.Context, review.Loss) (bool, error)
}

// Create raises the selected stages. What is up to date is left alone; what a
// failed or killed run left unfinished is completed. The error joins the root
// causes of what failed; package cli maps them to exit codes.
func Run(ctx context.Context, c *cluster.Cluster, o Options) error {
	chosen, err := o.Selection.Stages(c.Config.Stages)
	if err != nil {
		return err
	}
	var plan *review.Saved
	if o.Plan != "" {
		if plan, chosen, err = review.Open(c, o.Plan); err != nil {
			return err
		}
	}
	doubts, err := c.CheckConfig()
	if err != nil {
		return err
	}
	r, err := run.Begin(ctx, c, "create")
	if err != nil {
		return err
	}
	for _, d := range doubts {
		r.Notice(d)
	}
	creation := newCreation(r, o.Refresh)
	creation.adopts, creation.confirm = o.Adopt, o.Confirm
	if err := creation.followPlan(plan, chosen); err != nil {
		return r.End(err)
	}
	// What a destroy had proved gone before it was cut short may stand again.
	if err = r.Cluster.Dir.Proof().Clear(); err == nil {
		err = creation.create(ctx, chosen)
	}
	if err == nil && len(chosen) == len(c.Config.Stages) {
		err = r.Cluster.Dir.Recreation().Clear() // a recreate that was cut short is complete with it
	}
	return r.End(err)
}

// raiseStages raises stages in a run that has begun; refresh applies even what is up to date.
func Stages(ctx context.Context, r *run.Run, stages []*config.Stage, refresh bool) error {
	return newCreation(r, refresh).create(ctx, stages)
}

func newCreation(r *run.Run, refresh bool) *creation {
	return &creation{run: r, refresh: refresh, prepared: map[*config.Stage]*preparation{}, refreshed: map[*config.Stage]*refreshOnce{}}
}

// creation is a run that creates.
type creation struct {
	run       *run.Run
	refresh   bool
	adopts    bool                                             // see CreateOptions.Adopt
	confirm   func(context.Context, review.Loss) (bool, error) // see CreateOptions.Agree
	saved     *review.Saved                                    // the saved plan that is applied; may be nil
	asking    sync.Mutex
	preparing sync.Mutex // of stages that were not chosen
	unchosen  []*run.Workspace
	outcomes  outcomes
	prepared  map[*config.Stage]*preparation
	refreshed map[*config.Stage]*refreshOnce
}

func (r *creation) create(ctx context.Context, chosen []*config.Stage) (err error) {
	tasks := r.createTasks(chosen)
	for _, s := range r.run.Cluster.Config.Stages {
		if s.Volatile {
			r.refreshed[s] = &refreshOnce{}
		}
	}
	preparing, stop := context.WithCancel(ctx)
	done := r.prepareAll(preparing, chosen)
	defer func() {
		stop()
		<-done
		err = errors.Join(err, r.closeWorkspaces())
	}()
	skipped := map[*config.Stage]bool{}
	err = graph.Walk(ctx, tasks, taskNeeds, func(ctx context.Context, t *task) error {
		if err := t.do(ctx); err != nil {
			s := t.stage
			return diagnose.Explain(ctx, r.run, diagnose.Subject{Layer: s.Layer, Name: s.Name, Stage: s}, run.Failed(ctx, r.run, s.Layer, s.Name, err))
		}
		return nil
	}, func(s graph.Skipped[*task]) {
		// A stage has up to three tasks; it is told once, and not if one of them
		// has failed.
		st := s.Node.stage
		if skipped[st] || s.Cause.stage == st {
			return
		}
		skipped[st] = true
		r.run.Emit(event.Event{
			Kind: event.StageSkipped, Layer: st.Layer, Stage: st.Name,
			Text: fmt.Sprintf("dependency %s failed", s.Cause.name),
		})
	})
	if err != nil || len(chosen) < len(r.run.Cluster.Config.Stages) {
		return err
	}
	left, err := r.run.Cluster.UnlistedStages()
	for _, u := range left {
		r.run.Notice(u.String())
	}
	return err
}

// renewal is the one time in a run that a volatile stage is read again, at the
// moment the first stage that needs it is about to run.
type refreshOnce struct {
	once sync.Once
	err  error
}
