package destroy

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"

	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/event"
	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/proxmox"
	"github.com/ephemeral-castle/castle/internal/run/recovery"
	"github.com/ephemeral-castle/castle/internal/state"
)

// account accounts for what Terraform says it deleted. The question that a create
// asks before it adopts an object is asked once more: an object that is still
// there is left over. Where there is no question, or no answer, the receipt says
// that it rests on Terraform's word. What is in Proxmox is proved by itself.
func (r *destruction) verifyAdopted(ctx context.Context, d *Stage, addresses []string) error {
	var things []event.OwnedObject
	asked := map[string]bool{}
	for i := range d.Record.Adopts {
		a := &d.Record.Adopts[i]
		if !a.Left && !slices.Contains(addresses, a.Address) {
			continue
		}
		thing, err := r.verifyObject(ctx, a)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil {
			r.run.Notice(fmt.Sprintf("%s: nobody can tell whether %s is gone: %v", d.Record.Name, a.Address, err))
			continue
		}
		asked[a.Address], a.Left = true, !thing.Gone
		things = append(things, thing)
	}
	r.noteUnverified(d, addresses, asked)
	if err := r.noteObjects(d.Record.Name, things); err != nil {
		// The state does not know it any more; the next destroy has to ask again.
		return errors.Join(err, r.run.Cluster.Dir.Stage(d.Record.Name).SetRecord(d.Record))
	}
	return nil
}

// find asks whether an object is there.
func (r *destruction) verifyObject(ctx context.Context, a *state.RecordedAdopt) (event.OwnedObject, error) {
	types := cluster.ExistsTypes()
	i := slices.IndexFunc(types, func(t gate.ExistsType) bool { return t.Name == a.Exists.Type })
	if i < 0 {
		return event.OwnedObject{}, fmt.Errorf("this castle does not know the question %s", a.Exists.Type)
	}
	values, err := a.Exists.Decode()
	if err != nil {
		return event.OwnedObject{}, err
	}
	target := gate.Target{Environ: r.run.Cluster.Options.Environ}
	if target.Kubeconfig, err = os.ReadFile(r.run.Cluster.Dir.Kubeconfig()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return event.OwnedObject{}, err
	}
	question, err := types[i].New(a.Exists.Type, target, values)
	if err != nil {
		return event.OwnedObject{}, err
	}
	there, err := question.Lookup(ctx, nil)
	thing := event.OwnedObject{Kind: question.Object.Kind, ID: question.Object.ID, Gone: !there}
	if there {
		thing.Reason, thing.Fix = "still there", question.Object.Fix
	}
	return thing, err
}

// trust notes what Terraform says it deleted and castle has nobody to ask for.
func (r *destruction) noteUnverified(d *Stage, addresses []string, asked map[string]bool) {
	r.noting.Lock()
	defer r.noting.Unlock()
	for _, res := range d.state.Resources {
		if slices.Contains(addresses, res.Address) && !asked[res.Address] && !proxmox.Owns(res.Type) && !recovery.InStateOnly(res.Provider) && !recovery.InMachines(res.Provider) {
			r.unasked = append(r.unasked, d.Record.Name+": "+res.Address)
		}
	}
}

// prove asks what of a stage is still there: the datacenter for what its
// resources stood for, the recorded preflights, and the state. Nothing is forgotten
// before all of it is gone, and what cannot be asked is not.
func (r *destruction) verify(ctx context.Context, d *Stage) error {
	dir := r.run.Cluster.Dir.Stage(d.Record.Name)
	st, err := dir.State()
	if err != nil {
		return err
	}
	d.state = st
	traces, err := cluster.Owned(dir)
	if err != nil {
		return err
	}
	things, err := r.verifyOwned(ctx, d, proxmox.Merge(traces, proxmox.OwnedBy(cluster.Known(st))...))
	if err != nil {
		return err
	}
	err = r.inspectRecorded(ctx, d, func(_ string, f gate.Inspection) {
		if slices.ContainsFunc(things, func(t event.OwnedObject) bool { return t.Kind == proxmox.Machine && !t.Gone }) {
			return // it says the same
		}
		if things = append(things, f.Proof...); len(f.Proof) > 0 {
			return
		}
		for _, what := range f.Present {
			things = append(things, event.OwnedObject{Kind: "machine", ID: what, Reason: "still there", Fix: "remove it in Proxmox"})
		}
	})
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil && all(things, func(t event.OwnedObject) bool { return t.Gone }) {
		things = append(things, event.OwnedObject{Kind: "machines", ID: "of stage " + d.Record.Name, Reason: "not proved: " + err.Error()})
	}
	if !d.EndsWithCluster {
		for _, res := range cluster.Known(st) {
			things = append(things, event.OwnedObject{Kind: "resource", ID: res.Address, Reason: "Terraform has it in its state"})
		}
	}
	return r.noteObjects(d.Record.Name, things)
}

// traced asks the datacenter for what the stage's resources stood for.
func (r *destruction) verifyOwned(ctx context.Context, d *Stage, traces []proxmox.Owned) (things []event.OwnedObject, err error) {
	if len(traces) == 0 {
		return nil, nil
	}
	client, err := r.datacenter(d)
	if err != nil {
		return []event.OwnedObject{{Kind: "stage", ID: d.Record.Name, Reason: "what it had in Proxmox is not proved gone: " + err.Error()}}, nil
	}
	err = r.run.Step(d.Record.Name, d.Record.Layer, "proof", func() error {
		things, err = proxmox.Search{Client: client}.Gone(ctx, traces, r.run.Notice)
		return err
	})
	return things, err
}
