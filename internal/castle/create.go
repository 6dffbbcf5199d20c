package castle

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/event"
	"github.com/ephemeral-castle/castle/internal/graph"
)

// CreateOptions narrow and sharpen a create.
type CreateOptions struct {
	Selection Selection
	Refresh   bool // apply even what is up to date
	// Adopt takes over what is the cluster's own by name, tags and node, though
	// castle does not know that it made it.
	Adopt bool
	// Plan is the file of a saved plan, which decides on everything else; Agree is
	// not asked then, but if it is nil a stage that could not be planned may do anything.
	Plan string
	// Agree is asked before a stage replaces or destroys anything that it has made,
	// for one stage at a time; nil: everybody agrees.
	Agree func(context.Context, Loss) (bool, error)
}

// Create raises the selected stages. What is up to date is left alone; what a
// failed or killed run left unfinished is completed. The error joins the root
// causes of what failed; package cli maps them to exit codes.
func (c *Castle) Create(ctx context.Context, o CreateOptions) error {
	chosen, err := o.Selection.stages(c.cluster.Stages)
	if err != nil {
		return err
	}
	var plan *review
	if o.Plan != "" {
		if plan, chosen, err = c.review(o.Plan); err != nil {
			return err
		}
	}
	doubts, err := c.judged()
	if err != nil {
		return err
	}
	r, err := c.begin(ctx, "create")
	if err != nil {
		return err
	}
	for _, d := range doubts {
		r.notice(d)
	}
	creation := r.creation(o.Refresh)
	creation.adopts, creation.agreed = o.Adopt, o.Agree
	if err := creation.follow(plan, chosen); err != nil {
		return r.end(err)
	}
	// What a destroy had proved gone before it was cut short may stand again.
	if err = r.dir.Proof().Clear(); err == nil {
		err = creation.create(ctx, chosen)
	}
	if err == nil && len(chosen) == len(c.cluster.Stages) {
		err = r.dir.Recreation().Clear() // a recreate that was cut short is complete with it
	}
	return r.end(err)
}

// raiseStages raises stages in a run that has begun; refresh applies even what is up to date.
func (r *run) raiseStages(ctx context.Context, stages []*config.Stage, refresh bool) error {
	return r.creation(refresh).create(ctx, stages)
}

func (r *run) creation(refresh bool) *creation {
	return &creation{run: r, refresh: refresh, prepared: map[*config.Stage]*preparation{}, renewed: map[*config.Stage]*renewal{}}
}

// creation is a run that creates.
type creation struct {
	*run
	refresh   bool
	adopts    bool                                      // see CreateOptions.Adopt
	agreed    func(context.Context, Loss) (bool, error) // see CreateOptions.Agree
	reviewed  *review                                   // the saved plan that is applied; may be nil
	asking    sync.Mutex
	preparing sync.Mutex // of stages that were not chosen
	unchosen  []*workshop
	outcomes  outcomes
	prepared  map[*config.Stage]*preparation
	renewed   map[*config.Stage]*renewal
}

func (r *creation) create(ctx context.Context, chosen []*config.Stage) (err error) {
	tasks := r.createTasks(chosen)
	for _, s := range r.cluster.Stages {
		if s.Volatile {
			r.renewed[s] = &renewal{}
		}
	}
	preparing, stop := context.WithCancel(ctx)
	done := r.prepareAll(preparing, chosen)
	defer func() {
		stop()
		<-done
		err = errors.Join(err, r.closeWorkshops())
	}()
	skipped := map[*config.Stage]bool{}
	err = graph.Walk(ctx, tasks, taskNeeds, func(ctx context.Context, t *task) error {
		if err := t.do(ctx); err != nil {
			s := t.stage
			return r.explained(ctx, subject{s.Layer, s.Name, s}, r.failed(ctx, s.Layer, s.Name, err))
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
		r.emit(event.Event{
			Kind: event.StageSkipped, Layer: st.Layer, Stage: st.Name,
			Text: fmt.Sprintf("dependency %s failed", s.Cause.name),
		})
	})
	if err != nil || len(chosen) < len(r.cluster.Stages) {
		return err
	}
	left, err := r.unlisted()
	for _, u := range left {
		r.notice(u.String())
	}
	return err
}

// renewal is the one time in a run that a volatile stage is read again, at the
// moment the first stage that needs it is about to run.
type renewal struct {
	once sync.Once
	err  error
}
