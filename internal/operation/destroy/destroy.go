// Package destroy deletes recorded stages in the reverse order of their needs and verifies that nothing
// remains. It works from the records in the state directory, so that it also destroys stages that were
// renamed or removed since.
//
// If the cluster itself ends, castle does not contact its inside. It first destroys and verifies the
// external parts of its stages and the platform, then archives the rest. castle untracks nothing before it
// is proved gone, and a receipt records the proof.
package destroy

import (
	"context"
	"errors"
	"sync"

	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/event"
	"github.com/ephemeral-castle/castle/internal/graph"
	"github.com/ephemeral-castle/castle/internal/process"
	"github.com/ephemeral-castle/castle/internal/proxmox"
	"github.com/ephemeral-castle/castle/internal/run"
	"github.com/ephemeral-castle/castle/internal/run/diagnose"
)

// Options select the stages to destroy.
type Options struct {
	Selection cluster.Selection
	All       bool // persistent stages too
	// Graceful deletes the objects in the cluster properly, though the cluster ends.
	Graceful bool
	// KeepSecrets keeps the stages of the secrets layer that need no cluster.
	KeepSecrets bool
}

// Run destroys the stages that Select returns and verifies that nothing is left.
func Run(ctx context.Context, c *cluster.Cluster, o Options) error {
	r, err := run.Begin(ctx, c, "destroy")
	if err != nil {
		return err
	}
	stages, err := Restored(r, o)
	if err == nil {
		err = c.Dir.Recreation().Clear() // from here on a recreate begins anew
	}
	if err != nil {
		return r.End(err)
	}
	d, err := newDestruction(r, o.Graceful)
	if err != nil {
		return r.End(err)
	}
	if len(stages)+len(d.receipt.objects) == 0 {
		r.Notice("nothing stands; there is nothing to destroy")
	}
	return r.End(d.destroy(ctx, stages))
}

// Restored is Select under the cluster's lock. It first restores states that cannot
// be read, and reports that.
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

// Stages destroys stages in a run that has begun, in the reverse order of their needs.
func Stages(ctx context.Context, r *run.Run, stages []*Stage, graceful bool) error {
	d, err := newDestruction(r, graceful)
	if err != nil {
		return err
	}
	return d.destroy(ctx, stages)
}

// destruction is a run that destroys.
type destruction struct {
	run      *run.Run
	all      []*Stage // everything that was recorded
	graceful bool
	receipt  *receipt

	mu       sync.Mutex
	deferred []*Stage // archived when the cluster is gone
}

func newDestruction(r *run.Run, graceful bool) (*destruction, error) {
	recorded, err := RecordedStages(r.Cluster)
	if err != nil {
		return nil, err
	}
	d := &destruction{
		run:      r,
		all:      recorded,
		graceful: graceful,
		receipt:  &receipt{run: r, gone: map[string]bool{}},
	}
	return d, d.receipt.resume()
}

func (d *destruction) destroy(ctx context.Context, stages []*Stage) error {
	if err := (&tokens{d, stages}).check(ctx); err != nil {
		return err
	}
	byName := map[string]*Stage{}
	for _, s := range stages {
		byName[s.Record.Name] = s
	}
	needs := func(s *Stage) []*Stage {
		var all []*Stage
		for _, name := range s.Record.Needs {
			if need := byName[name]; need != nil {
				all = append(all, need)
			}
		}
		return all
	}
	err := graph.Walk(ctx, stages, graph.Reverse(stages, needs), func(ctx context.Context, s *Stage) error {
		one := &stageDestruction{
			destruction: d,
			run:         d.run,
			stage:       s,
			dir:         d.run.Cluster.Dir.Stage(s.Record.Name),
		}
		if err := one.destroyStage(ctx); err != nil {
			of := diagnose.Subject{Layer: s.Record.Layer, Name: s.Record.Name}
			return diagnose.Explain(ctx, d.run, of, run.Failed(ctx, d.run, of.Layer, of.Name, err))
		}
		return nil
	}, func(s graph.Skipped[*Stage]) {
		d.run.Emit(event.Event{
			Kind: event.StageSkipped, Layer: s.Node.Record.Layer, Stage: s.Node.Record.Name,
			Text: s.Cause.Record.Name + " still stands",
		})
	})
	for _, s := range d.deferred { // the platform was not proved gone
		d.run.Emit(event.Event{
			Kind: event.StageSkipped, Layer: s.Record.Layer, Stage: s.Record.Name,
			Text: "kept until the cluster is gone",
		})
	}
	return errors.Join(err, d.receipt.write(d.all, stages, err))
}

// archiveDeferred archives the stages inside the cluster, now that it is proved gone.
func (d *destruction) archiveDeferred() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, s := range d.deferred {
		if err := d.run.Cluster.Dir.Stage(s.Record.Name).Archive(d.run.ID); err != nil {
			return err
		}
		const how = "what was in the cluster ended with it; its state is kept in the archive"
		if err := d.receipt.noteRemoved(s, how); err != nil {
			return err
		}
		d.run.Emit(event.Event{
			Kind: event.StageGone, Layer: s.Record.Layer, Stage: s.Record.Name,
			Text: "ended with the cluster",
		})
	}
	d.deferred = nil
	return d.run.Cluster.RemoveExports()
}

// datacenter makes a client of the datacenter of a stage's objects. It comes from the stage's own preflight,
// else from another stage's, else from the environment of the Terraform provider.
func (d *destruction) datacenter(s *Stage) (*proxmox.Client, error) {
	for _, one := range append([]*Stage{s}, d.all...) {
		recorded, err := cluster.Datacenters(one.Record)
		if err != nil {
			return nil, err
		}
		if len(recorded) > 0 {
			return proxmox.NewClient(recorded[0].Options)
		}
	}
	getenv := func(name string) string { return process.Getenv(d.run.Cluster.Options.Environ, name) }
	o := proxmox.Options{Endpoint: getenv("PROXMOX_VE_ENDPOINT"), Token: getenv("PROXMOX_VE_API_TOKEN")}
	if o.Endpoint == "" || o.Token == "" {
		return nil, errors.New("no preflight vm_ids was recorded that says how to reach Proxmox; " +
			"set PROXMOX_VE_ENDPOINT and PROXMOX_VE_API_TOKEN")
	}
	insecure := getenv("PROXMOX_VE_INSECURE")
	o.Insecure = insecure == "1" || insecure == "true"
	return proxmox.NewClient(o)
}
