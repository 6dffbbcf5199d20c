package castle

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/event"
	"github.com/ephemeral-castle/castle/internal/graph"
	"github.com/ephemeral-castle/castle/internal/state"
)

// DestroyOptions say what goes.
type DestroyOptions struct {
	Selection Selection
	All       bool // persistent stages too
	// Graceful deletes what is in the cluster properly, though the cluster ends.
	Graceful bool
	// KeepSecrets leaves what the secrets layer holds, where it needs no cluster.
	KeepSecrets bool
}

// Doomed is one stage that a destroy would raze.
type Doomed struct {
	Record    state.Record
	Resources []string // addresses of what Terraform owns
	// Collapses says that what this stage has in the cluster ends with the
	// cluster and is not deleted by itself.
	Collapses bool

	state    *state.State
	inFlight []state.Intended // what a run that was cut short was making
	ended    bool             // the cluster ends with this destroy
	begun    bool             // it was told that the stage has started

	attempted bool         // Terraform was told to destroy something
	denied    *deniedError // why Proxmox will not hear of it
}

// Doomed returns what a destroy with these options would raze, by layer and
// inside a layer by name. It reads what the state directory recorded, whatever the
// configuration says by now.
func (c *Castle) Doomed(o DestroyOptions) ([]*Doomed, error) {
	all, err := c.recorded()
	if err != nil {
		return nil, err
	}
	places := make([]place, len(all))
	for i, d := range all {
		places[i] = place{d.Record.Name, d.Record.Layer}
	}
	chosen, err := o.Selection.filter(places)
	if err != nil {
		return nil, err
	}
	stays := outliving(all)
	var doomed, staying []*Doomed
	for i, d := range all {
		switch {
		case chosen[i] && (o.All || !d.Record.Persistent) && !(o.KeepSecrets && stays[d.Record.Name]):
			doomed = append(doomed, d)
		case !d.Record.Persistent: // what is persistent outlives what it needs
			staying = append(staying, d)
		}
	}
	if err := o.undermined(doomed, staying); err != nil {
		return nil, err
	}
	ends := slices.ContainsFunc(doomed, func(d *Doomed) bool { return d.Record.EndsCluster })
	for _, d := range doomed {
		d.ended = ends && !o.Graceful
		lost := slices.ContainsFunc(d.inFlight, func(c state.Intended) bool { return isInCluster(c.Type, d.Record.InCluster) })
		d.Collapses = d.ended && (lost || len(d.inCluster()) > 0)
	}
	return doomed, nil
}

// undermined refuses to take away what a stage that is not selected stands on:
// what it has in a cluster that is gone could never be deleted, and without the
// keys that it was made with, a cluster can never be reached again.
func (o DestroyOptions) undermined(doomed, staying []*Doomed) error {
	below := map[string]bool{}
	var names []string
	for _, d := range doomed {
		names = append(names, d.Record.Name)
		below[d.Record.Name] = len(d.Resources) > 0
	}
	var standing []string
	for grown := true; grown; {
		grown = false
		for _, d := range staying {
			on := func(need string) bool { return below[need] }
			if !below[d.Record.Name] && slices.ContainsFunc(d.Record.Needs, on) {
				below[d.Record.Name], grown = true, true
				standing = append(standing, d.Record.Name)
			}
		}
	}
	if len(standing) == 0 {
		return nil
	}
	return &UsageError{Message: fmt.Sprintf("%s would take away what others stand on: %s; destroy them with it: --only %s",
		o.Selection, strings.Join(standing, ", "), strings.Join(append(names, standing...), ","))}
}

// recorded reads every recorded stage, by layer and inside a layer by name.
func (c *Castle) recorded() ([]*Doomed, error) {
	names, err := c.dir.Stages()
	if err != nil {
		return nil, err
	}
	var all []*Doomed
	for _, name := range names {
		dir := c.dir.Stage(name)
		rec, err := dir.Record()
		if err != nil {
			return nil, err
		}
		st, err := dir.LastKnown()
		if err != nil {
			return nil, err
		}
		for _, out := range st.Outputs {
			if out.Sensitive {
				c.masker.Add(stringsIn(out.Value)...)
			}
		}
		lost, err := inFlight(dir, st)
		if err != nil {
			return nil, err
		}
		d := &Doomed{Record: rec, state: st, inFlight: lost}
		d.Resources = d.managed()
		all = append(all, d)
	}
	layer := func(d *Doomed) int { return slices.Index(config.Layers(), d.Record.Layer) }
	slices.SortStableFunc(all, func(a, b *Doomed) int { return layer(a) - layer(b) })
	return all, nil
}

// managed are the addresses of what Terraform owns.
func (d *Doomed) managed() []string {
	var addresses []string
	for _, res := range d.state.Resources {
		if res.Mode == managed {
			addresses = append(addresses, res.Address)
		}
	}
	return addresses
}

// inCluster are the resources that the generated providers own.
func (d *Doomed) inCluster() []string { return d.owned(true) }

// external are all others: they would survive the cluster.
func (d *Doomed) external() []string { return d.owned(false) }

func (d *Doomed) owned(inCluster bool) []string {
	var addresses []string
	for _, res := range d.state.Resources {
		if res.Mode == managed && slices.Contains(d.Record.InCluster, res.Provider) == inCluster {
			addresses = append(addresses, res.Address)
		}
	}
	return addresses
}

// Destroy razes what Doomed says, in the reverse of the order in which it was
// raised, and proves that nothing is left. Where the cluster itself goes, what is
// inside it is not contacted: it is forgotten, but only after the cluster is
// proved gone.
func (c *Castle) Destroy(ctx context.Context, o DestroyOptions) error {
	r, err := c.begin(ctx, "destroy")
	if err != nil {
		return err
	}
	doomed, err := r.mended(o)
	if err == nil {
		err = r.dir.Recreation().Clear() // from here on a recreate begins anew
	}
	if err != nil {
		return r.end(err)
	}
	destruction, err := r.destruction(o.Graceful)
	if err != nil {
		return r.end(err)
	}
	if len(doomed)+len(destruction.things) == 0 {
		r.notice("nothing stands; there is nothing to destroy")
	}
	return r.end(destruction.destroy(ctx, doomed))
}

// mended is Doomed under the cluster lock: states that cannot be read are
// restored first, and the user is told.
func (r *run) mended(o DestroyOptions) ([]*Doomed, error) {
	names, err := r.dir.Stages()
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		if _, err := r.readState(r.dir.Stage(name)); err != nil {
			return nil, err
		}
	}
	return r.Doomed(o)
}

// destruction is a run that destroys.
type destruction struct {
	*run
	all      []*Doomed // everything that was recorded
	graceful bool
	mu       sync.Mutex
	deferred []*Doomed // stages whose remains are archived when the cluster is gone

	noting  sync.Mutex      // for what follows
	things  []event.OwnedObject   // what was owned, and whether it is gone
	unasked []string        // what Terraform says it deleted, and castle cannot ask for
	gone    map[string]bool // stages
}

// razeStages destroys stages in a run that has begun, in the reverse order of their needs.
func (r *run) razeStages(ctx context.Context, doomed []*Doomed, graceful bool) error {
	destruction, err := r.destruction(graceful)
	if err != nil {
		return err
	}
	return destruction.destroy(ctx, doomed)
}

func (r *run) destruction(graceful bool) (*destruction, error) {
	recorded, err := r.recorded()
	if err != nil {
		return nil, err
	}
	d := &destruction{run: r, all: recorded, graceful: graceful, gone: map[string]bool{}}
	return d, d.resume()
}

func (r *destruction) destroy(ctx context.Context, doomed []*Doomed) error {
	if err := r.admit(ctx, doomed); err != nil {
		return err
	}
	byName := map[string]*Doomed{}
	for _, d := range doomed {
		byName[d.Record.Name] = d
	}
	needs := func(d *Doomed) []*Doomed {
		var all []*Doomed
		for _, name := range d.Record.Needs {
			if need := byName[name]; need != nil {
				all = append(all, need)
			}
		}
		return all
	}
	err := graph.Walk(ctx, doomed, graph.Reverse(doomed, needs), func(ctx context.Context, d *Doomed) error {
		if err := r.stage(ctx, d); err != nil {
			of := subject{layer: d.Record.Layer, name: d.Record.Name}
			return r.explained(ctx, of, r.failed(ctx, of.layer, of.name, err))
		}
		return nil
	}, func(s graph.Skipped[*Doomed]) {
		r.emit(event.Event{
			Kind: event.StageSkipped, Layer: s.Node.Record.Layer, Stage: s.Node.Record.Name,
			Text: s.Cause.Record.Name + " still stands",
		})
	})
	for _, d := range r.deferred { // the platform was not proved gone
		r.emit(event.Event{
			Kind: event.StageSkipped, Layer: d.Record.Layer, Stage: d.Record.Name, Text: "kept until the cluster is gone",
		})
	}
	return errors.Join(err, r.receipt(doomed, err))
}

// String names the stage in messages about the walk.
func (d *Doomed) String() string { return d.Record.Name }
