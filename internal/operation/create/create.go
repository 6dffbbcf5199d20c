// Package create raises stages. A create is a walk over tasks. A stage is a task. A preflight is a separate
// task, so that it runs before any stage changes anything. A deferred gate, which waits for other stages, is
// one too. Gates alone decide what is ready, never the end of Terraform.
package create

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/event"
	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/graph"
	"github.com/ephemeral-castle/castle/internal/history"
	"github.com/ephemeral-castle/castle/internal/run"
	"github.com/ephemeral-castle/castle/internal/run/applied"
	"github.com/ephemeral-castle/castle/internal/run/diagnose"
	"github.com/ephemeral-castle/castle/internal/run/review"
	"github.com/ephemeral-castle/castle/internal/run/unrecorded"
	"github.com/ephemeral-castle/castle/internal/run/waiting"
	"github.com/ephemeral-castle/castle/internal/talos"
)

// Options narrow and sharpen a create.
type Options struct {
	Selection cluster.Selection
	Refresh   bool            // apply even what is up to date
	Read      []*config.Stage // volatile ones that this run has read: again only if they have changed
	// Adopt takes over machines that are the cluster's by their uuids, though no killed run was making them.
	Adopt bool
	// Issuers are the resources that are replaced because they issue credentials, by stage. If it is set, a
	// plan that does more is refused with a *run.RefusedError.
	Issuers map[string][]string
	// Plan is the file of a saved plan, which then decides instead of Confirm. If
	// Confirm is nil, a stage that could not be planned may do anything.
	Plan string
	// PlanDigest is the SHA-256 that the file has to have; empty: any.
	PlanDigest string
	// RefuseLosses refuses a Plan that replaces or destroys what exists.
	RefuseLosses bool
	// Backup is the id of the save with which data are born; empty: the newest.
	Backup string
	// Found brings etcd into being in place of Terraform. It is called after the apply of the stage that
	// adopts what would have bootstrapped it, and before the gates of that stage; nil lets Terraform do it.
	Found func(context.Context) error
	// Confirm is called before a stage replaces or destroys anything that it has made,
	// for one stage at a time; nil confirms everything.
	Confirm func(context.Context, review.Loss) (bool, error)
}

// Run raises the selected stages. It skips stages that are up to date and completes the work of a failed or
// killed run. The error joins the root causes; package cli maps them to exit codes.
func Run(ctx context.Context, c *cluster.Cluster, o Options) error {
	chosen, err := o.Selection.Stages(c.Config.Stages)
	if err != nil {
		return err
	}
	var plan *review.SavedPlan
	if o.Plan != "" {
		if plan, chosen, err = review.Open(c, o.Plan, o.PlanDigest); err != nil {
			return err
		}
	}
	ctx, r, err := run.BeginChecked(ctx, c, "create", applied.CleanUp)
	if err != nil {
		return err
	}
	// It would wait for etcd, or bootstrap an empty one where a backup was to be restored.
	if begun, err := c.Dir.Restoration().Value(); err != nil || begun.Backup != "" {
		return r.End(cmp.Or(err, cluster.Usagef("a restore was interrupted; complete it: %s --backup %s",
			c.Command("restore"), begun.Backup)))
	}
	creation := newCreation(r, o)
	if plan != nil {
		creation.saved = &savedPlan{run: r, plan: plan, refuses: o.RefuseLosses}
		err = creation.saved.follow(ctx, chosen)
	}
	if err == nil { // objects that an interrupted destroy proved gone may exist again
		err = c.Dir.Proofs().Clear()
	}
	if err == nil {
		err = creation.create(ctx, chosen)
	}
	if err == nil && len(chosen) == len(c.Config.Stages) {
		err = c.Dir.Recreation().Clear() // this completes an interrupted recreate
	}
	return r.End(err)
}

// Stages raises stages in a run that has begun. The options have no Selection and no Plan.
func Stages(ctx context.Context, r *run.Run, stages []*config.Stage, o Options) error {
	return newCreation(r, o).create(ctx, stages)
}

func newCreation(r *run.Run, o Options) *creation {
	c := &creation{run: r, refresh: o.Refresh, adopts: o.Adopt, confirm: o.Confirm, found: o.Found,
		issuers: o.Issuers, backup: o.Backup, read: o.Read, progress: map[*config.Stage]*progress{}}
	for _, s := range r.Cluster.Config.Stages {
		c.progress[s] = &progress{}
	}
	return c
}

// creation is a run that creates.
type creation struct {
	run     *run.Run
	refresh bool
	adopts  bool                                             // see Options.Adopt
	confirm func(context.Context, review.Loss) (bool, error) // see Options.Confirm
	found   func(context.Context) error                      // see Options.Found
	asking  sync.Mutex
	issuers map[string][]string // see Options.Issuers
	backup  string              // see Options.Backup
	read    []*config.Stage     // see Options.Read
	machine *Machine            // that alone is changed; nil: all that a stage has
	saved   *savedPlan          // nil without one

	progress   map[*config.Stage]*progress
	starting   sync.WaitGroup // providers of stages whose turn comes next
	preflights bool           // there are some, for which stages that need no other one wait
}

func (c *creation) create(ctx context.Context, chosen []*config.Stage) (err error) {
	c.run.Outputs.Compute(chosen)
	order, err := graph.Sort(chosen, run.StageNeeds)
	if err != nil {
		return err
	}
	c.run.Emit(event.Event{Kind: event.StagesSelected, Selection: history.Selection("create", order)})
	tasks, needs := c.createTasks(order), func(t *task) []*task { return t.needs }
	stages := c.run.Cluster.Config.Stages
	c.preflights = slices.ContainsFunc(order, func(s *config.Stage) bool {
		return len(s.Preflights)+len(s.Survivors) > 0
	})
	finish := c.prepareAll(ctx, order)
	defer func() { err = errors.Join(err, finish()) }()
	if c.saved != nil {
		if err := c.saved.verify(ctx, c, chosen); err != nil {
			return err
		}
	}
	err = graph.Walk(ctx, tasks, needs, func(ctx context.Context, t *task) error {
		if err := t.do(ctx); err != nil {
			of := diagnose.Subject{Layer: t.stage.Layer, Name: t.stage.Name, Stage: t.stage}
			err = c.run.Failed(ctx, of.Layer, of.Name, err)
			t.ended = ended(err)
			return diagnose.Explain(ctx, c.run, of, err)
		}
		return nil
	}, func(s graph.Skipped[*task]) {
		// A stage has up to three tasks: it is reported once, and not if one of them failed.
		st := s.Node.stage
		if p := c.progress[st]; !p.skipped && s.Cause.stage != st {
			p.skipped = true
			c.run.Emit(event.Event{Kind: event.StageSkipped, Layer: st.Layer, Stage: st.Name,
				Text: fmt.Sprintf("dependency %s %s", s.Cause.name, s.Cause.ended)})
		}
	})
	if err != nil || len(chosen) < len(stages) {
		return err
	}
	unlisted, err := c.run.Cluster.UnlistedStages()
	for _, u := range unlisted {
		c.run.Notice(u.String())
	}
	return err
}

// ended says how a stage ended with an error.
func ended(err error) string {
	switch {
	case !errors.As(err, new(*run.StageError)):
		return "was interrupted"
	case errors.As(err, new(*review.UnagreedError)):
		return "was not confirmed"
	case errors.As(err, new(run.Refusal)):
		return "was refused"
	}
	return "failed"
}

// progress is what a run knows of one stage. Its fields are written by one task of the stage at a time.
type progress struct {
	outcome event.Kind // how it ends if its gates open
	began   time.Time
	begun   atomic.Bool // its turn has come
	skipped bool

	prepared   chan struct{} // closed when the workspace is ready; nil for a stage that was not chosen
	before     *progress     // of the stage that is prepared before; nil for the first one
	work       *run.Workspace
	prepareErr error

	refresh    sync.Once // for a volatile stage, which is read again at most once
	refreshErr error
}

// atOnce is how many stages are prepared at once: while one runs init, the next one gets ready for it.
const atOnce = 2

// prepareAll prepares the work directories of stages in the background while earlier ones are applied: the
// module's copy, castle's override and terraform init. The inits keep the order of the stages, because the
// first one that needs a provider chooses its version. finish ends that and closes all logs.
func (c *creation) prepareAll(ctx context.Context, stages []*config.Stage) (finish func() error) {
	queue := make(chan *config.Stage, len(stages))
	var before *progress
	for _, s := range stages {
		c.progress[s].before, c.progress[s].prepared = before, make(chan struct{})
		before = c.progress[s]
		queue <- s
	}
	close(queue)
	ctx, stop := context.WithCancel(ctx)
	var preparing sync.WaitGroup
	for range atOnce {
		preparing.Go(func() {
			for s := range queue {
				c.prepare(ctx, s)
				close(c.progress[s].prepared)
			}
		})
	}
	return func() error {
		stop()
		preparing.Wait()
		c.starting.Wait()
		var errs []error
		for _, p := range c.progress {
			if p.work != nil {
				errs = append(errs, p.work.Close())
			}
		}
		return errors.Join(errs...)
	}
}

func (c *creation) prepare(ctx context.Context, s *config.Stage) {
	p := c.progress[s]
	if p.prepareErr = context.Cause(ctx); p.prepareErr != nil {
		return
	}
	if p.work, p.prepareErr = c.run.OpenWorkspace(s.Name, s.Layer); p.prepareErr == nil {
		_ = p.work.Root.GetReady(ctx) // the init reports why it cannot
		if p.before != nil {
			<-p.before.prepared
		}
		p.prepareErr = c.run.Retry(ctx, s.Name, s.Layer,
			func(bool) error { return p.work.Prepare(ctx, s, nil) })
	}
}

// workspace waits until a stage's workspace is prepared, and prepares that of one that was not chosen.
func (c *creation) workspace(ctx context.Context, s *config.Stage) (*run.Workspace, error) {
	p := c.progress[s]
	if p.prepared == nil {
		c.prepare(ctx, s)
		return p.work, p.prepareErr
	}
	select {
	case <-p.prepared:
		return p.work, p.prepareErr
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// begin notes that a stage's turn has come and starts the providers of the stages whose turn may come next:
// those that need only stages that have begun, or none and wait for a preflight. A stage that may be up to
// date starts none before it is known.
func (c *creation) begin(ctx context.Context, s *config.Stage) {
	c.progress[s].begun.Store(true)
	for next, p := range c.progress {
		comes := slices.Contains(next.Needs, s) || len(next.Needs) == 0 && c.preflights
		if p.prepared == nil || p.begun.Load() || !comes {
			continue
		}
		waits := func(need *config.Stage) bool { return !c.progress[need].begun.Load() }
		old, err := c.run.Cluster.Dir.Stage(next.Name).Fingerprint().Read()
		if err != nil || old != nil || slices.ContainsFunc(next.Needs, waits) {
			continue
		}
		c.starting.Go(func() {
			work, err := c.workspace(ctx, next)
			if err == nil && ctx.Err() == nil && !p.begun.Load() { // its own turn starts them, and ends them
				work.Root.StartProviders()
			}
		})
	}
}

// checkUnrecorded looks beyond a preflight, which has found the machines at the configured ids: ours. It
// refuses to create machines beside others of this cluster, and to take over those that nobody can reach.
func (c *creation) checkUnrecorded(ctx context.Context, s *config.Stage, p *config.Preflight,
	ours []gate.Own) error {
	if cluster.Platforms().OfMachines(p.Type.Name) == nil {
		return nil
	}
	if c.adopts {
		return c.checkSecrets(ctx, s, p, ours)
	}
	if _, err := c.run.Cluster.Dir.Stage(s.Name).Record(); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	found, err := unrecorded.Look(ctx, c.run, []*config.Stage{s})
	if err != nil {
		return err
	}
	return found.Refusal(c.run.Cluster, "nothing was created")
}

// checkSecrets refuses to take over machines that run with secrets which nobody here has. It asks before
// anything is imported, and before this run makes new secrets.
func (c *creation) checkSecrets(ctx context.Context, s *config.Stage, p *config.Preflight,
	ours []gate.Own) error {
	castle := c.run.Cluster
	if len(ours) == 0 {
		return nil
	}
	recorded := run.Observe(ctx, castle) // the outputs before this run
	states, err := recorded.LastKnownStates()
	if err != nil {
		return err
	}
	why := ""
	back := "if a copy of the state that holds them is left, bring it back: " + castle.Command("state show")
	for _, need := range s.Needs {
		if need.Layer == cluster.SecretsLayer && !need.Volatile && !states[need].Exists {
			why = fmt.Sprintf("stage %s, which makes the secrets, has no state", need.Name)
			folder := filepath.Dir(castle.Dir.Stage(need.Name).StatePath())
			back = "bring this folder back from a backup: " + folder
		}
	}
	runs := func(own gate.Own) bool { return own.Running }
	var all []waiting.Adoption
	for _, next := range castle.Config.Stages { // the one that configures the machines
		if next != s && !slices.Contains(next.Needs, s) || !slices.ContainsFunc(ours, runs) {
			continue
		}
		more, incomplete := waiting.Adoptions(recorded, next, states[next], "")
		if incomplete == nil {
			why = ""
		}
		all = append(all, more...)
	}
	for _, one := range all {
		if one.Lookup == nil {
			continue
		}
		_, err := exists(ctx, c.run, s, one)
		switch {
		case errors.Is(err, talos.ErrOtherSecrets):
			why = errors.Unwrap(err).Error()
		case err != nil: // the stage would import the machines, and then fail for the same reason
			return fmt.Errorf("adopt %s: %w", one.Address, err)
		}
	}
	if why == "" {
		return nil
	}
	return &run.PreflightError{Preflight: p.Name(), Foreign: []gate.Foreign{{
		What: "machines of this cluster run with secrets that are not here; nothing was imported", Why: why,
		Fixes: append(waiting.OtherStateFixes(castle), back),
	}}}
}
