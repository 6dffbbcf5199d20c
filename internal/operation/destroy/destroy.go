// Package destroy deletes recorded stages in the reverse order of their needs and
// verifies that nothing remains. It works from what the state directory recorded, so
// that stages that were renamed or removed since are destroyed too.
//
// If the cluster itself ends, its inside is not contacted: the external parts of its
// stages and the platform are destroyed and verified first, then the rest is archived.
// Nothing is forgotten before it is proved gone, and a receipt says how.
package destroy

import (
	"context"
	"errors"
	"sync"

	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/event"
	"github.com/ephemeral-castle/castle/internal/graph"
	"github.com/ephemeral-castle/castle/internal/run"
	"github.com/ephemeral-castle/castle/internal/run/diagnose"
)

// DestroyOptions say what goes.
type Options struct {
	Selection cluster.Selection
	All       bool // persistent stages too
	// Graceful deletes what is in the cluster properly, though the cluster ends.
	Graceful bool
	// KeepSecrets leaves what the secrets layer holds, where it needs no cluster.
	KeepSecrets bool
}

// Destroy razes what Doomed says, in the reverse of the order in which it was
// raised, and proves that nothing is left. Where the cluster itself goes, what is
// inside it is not contacted: it is forgotten, but only after the cluster is
// proved gone.
func Run(ctx context.Context, c *cluster.Cluster, o Options) error {
	r, err := run.Begin(ctx, c, "destroy")
	if err != nil {
		return err
	}
	doomed, err := Restored(r, o)
	if err == nil {
		err = r.Cluster.Dir.Recreation().Clear() // from here on a recreate begins anew
	}
	if err != nil {
		return r.End(err)
	}
	destruction, err := newDestruction(r, o.Graceful)
	if err != nil {
		return r.End(err)
	}
	if len(doomed)+len(destruction.objects) == 0 {
		r.Notice("nothing stands; there is nothing to destroy")
	}
	return r.End(destruction.destroy(ctx, doomed))
}

// mended is Doomed under the cluster lock: states that cannot be read are
// restored first, and the user is told.
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
	mu       sync.Mutex
	deferred []*Stage // stages whose remains are archived when the cluster is gone

	noting  sync.Mutex          // for what follows
	objects []event.OwnedObject // what was owned, and whether it is gone
	unasked []string            // what Terraform says it deleted, and castle cannot ask for
	gone    map[string]bool     // stages
}

// razeStages destroys stages in a run that has begun, in the reverse order of their needs.
func Stages(ctx context.Context, r *run.Run, doomed []*Stage, graceful bool) error {
	destruction, err := newDestruction(r, graceful)
	if err != nil {
		return err
	}
	return destruction.destroy(ctx, doomed)
}

func newDestruction(r *run.Run, graceful bool) (*destruction, error) {
	recorded, err := RecordedStages(r.Cluster)
	if err != nil {
		return nil, err
	}
	d := &destruction{run: r, all: recorded, graceful: graceful, gone: map[string]bool{}}
	return d, d.resumeReceipt()
}

func (r *destruction) destroy(ctx context.Context, doomed []*Stage) error {
	if err := r.checkTokens(ctx, doomed); err != nil {
		return err
	}
	byName := map[string]*Stage{}
	for _, d := range doomed {
		byName[d.Record.Name] = d
	}
	needs := func(d *Stage) []*Stage {
		var all []*Stage
		for _, name := range d.Record.Needs {
			if need := byName[name]; need != nil {
				all = append(all, need)
			}
		}
		return all
	}
	err := graph.Walk(ctx, doomed, graph.Reverse(doomed, needs), func(ctx context.Context, d *Stage) error {
		if err := r.destroyStage(ctx, d); err != nil {
			of := diagnose.Subject{Layer: d.Record.Layer, Name: d.Record.Name}
			return diagnose.Explain(ctx, r.run, of, run.Failed(ctx, r.run, of.Layer, of.Name, err))
		}
		return nil
	}, func(s graph.Skipped[*Stage]) {
		r.run.Emit(event.Event{
			Kind: event.StageSkipped, Layer: s.Node.Record.Layer, Stage: s.Node.Record.Name,
			Text: s.Cause.Record.Name + " still stands",
		})
	})
	for _, d := range r.deferred { // the platform was not proved gone
		r.run.Emit(event.Event{
			Kind: event.StageSkipped, Layer: d.Record.Layer, Stage: d.Record.Name, Text: "kept until the cluster is gone",
		})
	}
	return errors.Join(err, r.writeReceipt(doomed, err))
}
