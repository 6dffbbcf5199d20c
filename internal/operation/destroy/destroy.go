// Package destroy deletes recorded stages in the reverse order of their needs and verifies that nothing
// remains. It works from the records in the state directory, so that it also destroys stages that were
// renamed or removed since. If the cluster itself ends, castle does not contact its inside. It first destroys
// and verifies the external parts of its stages and the platform, then archives the rest. castle untracks
// nothing before it is proved gone, and a receipt records the proof.
package destroy

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/event"
	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/graph"
	"github.com/ephemeral-castle/castle/internal/kube"
	"github.com/ephemeral-castle/castle/internal/ownfile"
	"github.com/ephemeral-castle/castle/internal/platform"
	"github.com/ephemeral-castle/castle/internal/run"
	"github.com/ephemeral-castle/castle/internal/run/applied"
	"github.com/ephemeral-castle/castle/internal/run/diagnose"
	"github.com/ephemeral-castle/castle/internal/run/survival"
	"github.com/ephemeral-castle/castle/internal/run/unrecorded"
	"github.com/ephemeral-castle/castle/internal/state"
	"github.com/ephemeral-castle/castle/internal/state/recorded"
	"github.com/ephemeral-castle/castle/internal/tfeval"
)

// Options select the stages to destroy.
type Options struct {
	Selection cluster.Selection
	All       bool // persistent stages too
	// Graceful deletes the objects in the cluster properly, though the cluster ends.
	Graceful bool
	// DiscardData destroys the cluster without saving its data, and with volumes that nobody knows to stay.
	DiscardData bool
	// KeepSecrets keeps the stages of the secrets layer that need no cluster.
	KeepSecrets bool
}

// Run destroys the stages that Select returns and verifies that nothing is left.
func Run(ctx context.Context, c *cluster.Cluster, o Options) error {
	ctx, r, err := run.Begin(ctx, c, "destroy", applied.CleanUp)
	if err != nil {
		return err
	}
	stages, err := Restored(r, o)
	if err == nil {
		// From here on a recreate begins anew, and nothing is left to restore.
		err = errors.Join(c.Dir.Recreation().Clear(), c.Dir.Restoration().Clear())
	}
	if err == nil {
		err = Stages(ctx, r, stages, o)
	}
	return r.End(err)
}

// Restored is Select under the cluster's lock. It first restores, and reports, states that cannot be read.
func Restored(r *run.Run, o Options) ([]*Stage, error) {
	names, err := r.Cluster.Dir.Stages()
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		if _, err := r.ReadState(r.Cluster.Dir.Stage(name)); err != nil {
			return nil, err
		}
	}
	return Select(r.Cluster, o)
}

// destruction is a run that destroys.
type destruction struct {
	run      *run.Run
	all      []*Stage // everything that was recorded
	graceful bool
	receipt  *receipt
	data     []survival.Data // of what is destroyed
	ahead    *ahead

	mu       sync.Mutex
	deferred []*Stage // archived when the cluster is gone
}

// Stages destroys stages in a run that has begun, in the reverse order of their needs. Of the options, those
// that select stages do not matter. If the cluster ends, its data are saved first.
func Stages(ctx context.Context, r *run.Run, stages []*Stage, o Options) error {
	all, err := RecordedStages(r.Cluster)
	if err != nil {
		return err
	}
	d := &destruction{run: r, all: all, graceful: o.Graceful}
	if d.receipt, err = newReceipt(r); err != nil {
		return err
	}
	if len(stages)+len(d.receipt.rec.Objects) == 0 {
		r.Notice("no stage is recorded any more; nothing to destroy")
	}
	if err := checkInputs(r.Cluster, stages); err != nil {
		return err
	}
	if err := (&tokens{run: r, all: all, stages: stages}).check(ctx); err != nil {
		return err
	}
	d.ahead = &ahead{run: r, stages: stages, needs: graph.Reverse(stages, needsAmong(stages)),
		begun: map[*Stage]bool{}, opened: map[*Stage]*opened{}}
	r.Emit(event.Event{Kind: event.StagesSelected, Selection: selection(stages, d.ahead.needs)})
	err = d.askFirst(ctx, stages)
	for _, s := range stages {
		if err == nil {
			err = r.Retry(ctx, s.Record.Name, s.Record.Layer, func(bool) error {
				return d.settleVolumes(ctx, s, o.DiscardData)
			})
		}
	}
	if err == nil {
		err = d.saveData(ctx, stages, o.DiscardData)
	}
	if err == nil {
		err = graph.Walk(ctx, stages, d.ahead.needs, d.destroyStage, func(s graph.Skipped[*Stage]) {
			d.emit(event.StageSkipped, s.Node, s.Cause.Record.Name+" still stands")
		})
	}
	survival.Remind(r, d.data)
	err = errors.Join(err, d.ahead.close())
	for _, s := range d.deferred { // the platform was not proved gone
		d.emit(event.StageSkipped, s, "kept until the cluster is gone")
	}
	return errors.Join(err, d.receipt.write(all, stages, err))
}

// selection lists the stages for the reporter, those first that no other one has to precede.
func selection(stages []*Stage, needs func(*Stage) []*Stage) *event.Selection {
	selected := &event.Selection{Command: "destroy", Stages: []event.SelectedStage{}}
	order, err := graph.Sort(stages, needs)
	if err != nil {
		order = stages // the walk reports the cycle
	}
	for _, s := range order {
		one := event.SelectedStage{Layer: s.Record.Layer, Stage: s.Record.Name}
		for _, need := range needs(s) {
			one.Needs = append(one.Needs, need.Record.Name)
		}
		selected.Stages = append(selected.Stages, one)
	}
	return selected
}

// checkInputs refuses to begin a destroy that could not go on: the inputs beside a module are damaged.
func checkInputs(c *cluster.Cluster, stages []*Stage) (err error) {
	for _, s := range stages {
		if len(s.targets()) == 0 {
			continue
		}
		_, _, unread := recorded.Module(s.dir, c.Command("create"))
		if errors.As(unread, new(*state.DamagedError)) {
			err = errors.Join(err, fmt.Errorf("stage %s: %w", s.Record.Name, unread))
		}
	}
	return err
}

func (d *destruction) emit(kind event.Kind, s *Stage, text string) {
	d.run.Emit(event.Event{Kind: kind, Layer: s.Record.Layer, Stage: s.Record.Name, Text: text})
}

// askFirst runs the recorded preflights of all stages before the first one destroys anything, and returns
// their refusals. A preflight without an answer stops its own stage alone, in its turn.
func (d *destruction) askFirst(ctx context.Context, stages []*Stage) error {
	refusals := run.Each(stages, func(s *Stage) error {
		one := &stageDestruction{whole: d, run: d.run, stage: s}
		if _, _, err := one.checkOwnership(ctx, func(string) {}); errors.As(err, new(*run.PreflightError)) {
			return err
		}
		return nil
	})
	refused := slices.ContainsFunc(refusals, func(err error) bool { return err != nil })
	for i, err := range refusals {
		switch {
		case err != nil:
			refusals[i] = d.explain(ctx, stages[i], err)
		case refused:
			d.emit(event.StageSkipped, stages[i], "nothing is destroyed, as another stage is refused")
		}
	}
	return errors.Join(refusals...)
}

// destroyStage destroys a stage and explains its failure.
func (d *destruction) destroyStage(ctx context.Context, s *Stage) error {
	d.ahead.begin(ctx, s)
	err := (&stageDestruction{whole: d, run: d.run, stage: s}).destroyAndVerify(ctx)
	if err == nil {
		return nil
	}
	return d.explain(ctx, s, err)
}

// explain reports a stage's failure with its diagnosis.
func (d *destruction) explain(ctx context.Context, s *Stage, err error) error {
	of := diagnose.Subject{Layer: s.Record.Layer, Name: s.Record.Name}
	return diagnose.Explain(ctx, d.run, of, d.run.Failed(ctx, of.Layer, of.Name, err))
}

// archiveDeferred archives the stages inside the cluster, now that it is proved gone.
func (d *destruction) archiveDeferred() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, s := range d.deferred {
		if err := state.Archive(s.dir, d.run.ID); err != nil {
			return err
		}
		const how = "what was in the cluster ended with it; the archive has its addresses and ids"
		if err := d.receipt.noteRemoved(s, how); err != nil {
			return err
		}
		d.emit(event.StageGone, s, "ended with the cluster")
	}
	d.deferred = nil
	return errors.Join(d.run.ClearBirths(), d.run.Cluster.RemoveExports())
}

// datacenter makes a client of the datacenter of a stage's objects. It comes from the stage's own preflight,
// else from another stage's, else from the environment of the Terraform provider.
func (d *destruction) datacenter(s *Stage) (platform.Datacenter, error) {
	for _, one := range append([]*Stage{s}, d.all...) {
		recorded, err := cluster.Datacenters(one.Record)
		if err != nil {
			return nil, err
		}
		if len(recorded) > 0 {
			return recorded[0].Platform.Open(recorded[0].Account)
		}
	}
	var set []string
	for _, p := range cluster.Platforms() {
		if a := p.Environment(d.run.Cluster.Options.Environ); a.Endpoint != "" && a.Token != "" {
			return p.Open(a)
		}
		endpoint, token := p.Variables()
		set = append(set, endpoint+" and "+token)
	}
	return nil, errors.New("no preflight was recorded that says how to reach the datacenter; set " +
		strings.Join(set, ", or "))
}

// reachable waits until the cluster answers. The helm provider treats a cluster that
// does not answer as one without releases, and would report them as destroyed.
func (d *destruction) reachable(ctx context.Context) error {
	kubeconfig, err := d.kubeconfig()
	if err == nil {
		err = gate.Wait(ctx, kube.Reachable(kubeconfig), gate.Policy{Timeout: time.Minute}, gate.Listener{})
	}
	if err != nil && ctx.Err() == nil {
		return fmt.Errorf("what it has in the cluster cannot be deleted: %w\n  if the cluster is gone, %s",
			err, d.endClusterHint())
	}
	return err
}

// kubeconfig returns the authoritative one. If somebody has removed it, it is written
// again from the platform's state, for the providers.
func (d *destruction) kubeconfig() ([]byte, error) {
	data, err := ownfile.ReadFile(d.run.Cluster.Dir.Kubeconfig())
	if !errors.Is(err, fs.ErrNotExist) {
		return data, err
	}
	for _, s := range d.all {
		out, ok := s.state.Outputs[cluster.KubeconfigOutput]
		if ok && s.Record.Layer == cluster.PlatformLayer {
			data = []byte(tfeval.Text(out.Value))
			if err := kube.Inline(data); err != nil {
				return nil, err
			}
			return data, cluster.ReplaceFile(d.run.Cluster.Dir.Kubeconfig(), data)
		}
	}
	return nil, err
}

// endClusterHint explains how to end the objects in the cluster without contacting it.
func (d *destruction) endClusterHint() string {
	if d.graceful {
		return "leave --graceful out: what is in it ends with it"
	}
	i := slices.IndexFunc(d.all, func(s *Stage) bool { return s.Record.EndsCluster })
	if i < 0 {
		return "forget it: " + d.run.Cluster.Command("state forget") + " STAGE ADDRESS…"
	}
	return "destroy its platform with it: leave --only, --from and --to out, or name " +
		d.all[i].Record.Name + ", too"
}

// Nothing returns why there is nothing to destroy, for a record without stages. It refuses a destroy that
// would leave machines of the cluster behind because its state does not know them, or that cannot tell: the
// keys that are recorded may be the only ones. A recorded platform has its own checks, and a selection
// without the platform says nothing about machines.
func Nothing(ctx context.Context, c *cluster.Cluster, o Options) (string, error) {
	all, err := RecordedStages(c)
	if err != nil {
		return "", err
	}
	var names []string
	for _, s := range all {
		asked, err := cluster.Datacenters(s.Record)
		if err != nil {
			return "", err
		}
		hasIDs := func(d cluster.Datacenter) bool { return len(d.Ids) > 0 }
		if s.Record.EndsCluster || slices.ContainsFunc(asked, hasIDs) {
			return "nothing to destroy", nil
		}
		names = append(names, s.Record.Name)
	}
	r := run.Observe(ctx, c)
	if _, err := r.LastKnownStates(); err != nil {
		return "", err
	}
	selected, _ := o.Selection.Stages(c.Config.Stages) //nolint:errcheck // only recorded stages have the name
	found, err := unrecorded.Look(ctx, r, selected)
	if err != nil {
		return "", err
	}
	if len(names) > 0 && found.NotAsked != "" {
		found.Fixes = append(found.Fixes, "if there are none, destroy what is recorded: "+
			c.Command("destroy")+" --only "+strings.Join(names, ","))
	}
	if err := found.Refusal(c, "nothing was destroyed"); err != nil {
		return "", err
	}
	looked := "castle has no datacenter to look for machines"
	if found.Endpoint != "" {
		looked = found.Endpoint + " lists no machine of it"
	}
	return fmt.Sprintf("%s records none of it, and %s; nothing to destroy", c.Place(), looked),
		found.Unproved(c)
}

// ahead opens the workspaces of the next stages, and starts their providers, while others are destroyed.
type ahead struct {
	run    *run.Run
	needs  func(*Stage) []*Stage // what is destroyed before a stage
	stages []*Stage

	opening sync.WaitGroup
	mu      sync.Mutex
	begun   map[*Stage]bool
	opened  map[*Stage]*opened
}

type opened struct {
	done chan struct{}
	work *run.Workspace
	err  error
}

// begin notes that a stage's turn has come, and prepares those whose turn may come next.
func (a *ahead) begin(ctx context.Context, s *Stage) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.begun[s] = true
	waits := func(need *Stage) bool { return !a.begun[need] }
	for _, next := range a.stages {
		if !slices.Contains(a.needs(next), s) || slices.ContainsFunc(a.needs(next), waits) ||
			next.denied != nil || len(next.targets()) == 0 {
			continue
		}
		o := &opened{done: make(chan struct{})}
		a.opened[next] = o
		a.opening.Go(func() {
			defer close(o.done)
			if o.work, o.err = a.run.RecordedWorkspace(ctx, next.Record); o.err == nil {
				o.work.Root.StartProviders()
			}
		})
	}
}

// workspace returns a stage's workspace, ready for Terraform, which the caller closes.
func (a *ahead) workspace(ctx context.Context, s *Stage) (*run.Workspace, error) {
	a.mu.Lock()
	o := a.opened[s]
	delete(a.opened, s)
	a.mu.Unlock()
	if o != nil {
		if <-o.done; o.err == nil { // it ends with ctx
			return o.work, nil
		}
	}
	work, err := a.run.RecordedWorkspace(ctx, s.Record)
	if err == nil {
		work.Root.StartProviders()
	}
	return work, err
}

// close closes the workspaces of the stages whose turn has not come.
func (a *ahead) close() error {
	a.opening.Wait()
	var errs []error
	for _, o := range a.opened {
		if o.err == nil {
			errs = append(errs, o.work.Close())
		}
	}
	return errors.Join(errs...)
}
