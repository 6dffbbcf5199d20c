package destroy

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/event"
	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/platform"
	"github.com/ephemeral-castle/castle/internal/run"
	"github.com/ephemeral-castle/castle/internal/state"
)

// checkBlocked refuses to destroy a stage if the datacenter would keep one of its machines: a half destroyed
// cluster is useless. If it does not answer, Terraform goes on.
func (d *stageDestruction) checkBlocked(ctx context.Context) error {
	owned := cluster.Platforms().ObjectsOf(cluster.Known(d.stage.state))
	if len(owned) == 0 {
		return nil
	}
	datacenter, err := d.whole.datacenter(d.stage)
	if err != nil {
		return nil
	}
	objects, err := datacenter.Blocked(ctx, owned)
	if err != nil || len(objects) == 0 {
		return nil
	}
	begun := "nothing of it was touched"
	if d.attempted {
		begun = "not gone on with"
	}
	return errors.New(begun + ", as " + datacenter.Name() + " would not delete:" + run.ListObjects(objects))
}

// partialFailure looks up the remaining machines, disks and files of the stage after a destroy has failed
// with err, for the receipt and the message.
func (d *stageDestruction) partialFailure(ctx context.Context, err error) error {
	owned, unread := cluster.Owned(d.stage.dir).Value()
	if ctx.Err() != nil || unread != nil || len(owned) == 0 {
		return err
	}
	datacenter, unreached := d.whole.datacenter(d.stage)
	if unreached != nil {
		return err
	}
	objects := datacenter.Now(ctx, owned)
	if d.whole.receipt.note(d.stage.Record.Name, objects) == nil { // all gone; it failed at something else
		return err
	}
	blocked, blockErr := datacenter.Blocked(ctx, owned)
	var machines []event.OwnedObject
	for _, machine := range objects {
		if machine.Kind != platform.Machine {
			continue
		}
		// A machine that nothing blocks needs no fix: the same command destroys it.
		same := func(o event.OwnedObject) bool { return o.ID == machine.ID }
		if blockErr == nil && !slices.ContainsFunc(blocked, same) {
			machine.Fix = ""
		}
		machines = append(machines, machine)
	}
	return fmt.Errorf("%w\n  by now:%s", err, run.ListObjects(machines))
}

// owned returns the stage's objects in the datacenter, recorded or in its state.
func (s *Stage) owned() ([]platform.Object, error) {
	recorded, err := cluster.Owned(s.dir).Value()
	if err != nil {
		return nil, err
	}
	ids, err := cluster.MachineIDs(s.dir).Value()
	return platform.Merge(recorded, cluster.Platforms().ObjectsOf(cluster.Known(s.state, ids...))...), err
}

// keepFiles untracks the files that must not be deleted: those that this state directory has not made, and
// those that a machine of another state may use.
func (d *stageDestruction) keepFiles(ctx context.Context, work *run.Workspace) error {
	borrowed, err := cluster.BorrowedFiles(d.stage.dir, d.stage.state)
	if err != nil {
		return err
	}
	var addresses []string
	var kept []platform.Object
	for _, k := range cluster.Known(d.stage.state) {
		if cluster.Platforms().FileID(k) == "" {
			continue
		}
		file, why := cluster.Platforms().ObjectsOf([]gate.Known{k})[0], "this state has not made it"
		if !slices.Contains(borrowed, k.Address) {
			user, err := d.userOf(ctx, file)
			if err != nil {
				return fmt.Errorf("whether another cluster uses %s: %w", file.Volume, err)
			}
			if user == "" {
				continue
			}
			why = "it may be used by " + user
		}
		addresses, kept = append(addresses, k.Address), append(kept, file)
		d.run.Notice(fmt.Sprintf("%s %s stays: %s; if nobody needs it, %s", file.Kind, file.Volume, why,
			cluster.Platforms().Owner(k.Type).Remedy(file)))
	}
	if len(addresses) == 0 {
		return nil
	}
	untrack := func() error { return work.Root.Untrack(ctx, addresses) }
	if err := d.run.Step(d.stage.Record.Name, d.stage.Record.Layer, "state rm", untrack); err != nil {
		return err
	}
	return errors.Join(cluster.UntrackOwned(d.stage.dir, kept), cluster.UntrackHeld(d.stage.dir, addresses),
		d.stage.restate(d.run))
}

// userOf returns a guest that may use a file and that no stage of this state has made.
func (d *stageDestruction) userOf(ctx context.Context, file platform.Object) (string, error) {
	var own []platform.Object
	for _, s := range append(slices.Clone(d.whole.all), d.stage) {
		machines, err := s.owned()
		if err != nil {
			return "", err
		}
		own = append(own, machines...)
	}
	datacenter, err := d.whole.datacenter(d.stage)
	if err != nil {
		return "", err
	}
	return datacenter.FileUser(ctx, d.run.Cluster.Config.Name, file.Volume, own)
}

// saveOwned records the stage's objects in the datacenter before castle destroys them: the state loses them,
// and a later destroy may have to verify them.
func (d *stageDestruction) saveOwned(ctx context.Context) error {
	owned, err := d.stage.owned()
	if err != nil || len(owned) == 0 {
		return err
	}
	if datacenter, err := d.whole.datacenter(d.stage); err == nil {
		owned = datacenter.Complete(ctx, owned)
	}
	return cluster.Owned(d.stage.dir).Write(owned)
}

// saveHeld records the addresses of the stage's objects before castle destroys them, so that a destroy after
// a kill still verifies that a machine was released.
func (s *Stage) saveHeld() error {
	if len(s.Record.Preflights) == 0 {
		return nil
	}
	held, err := cluster.Held(s.dir).Value()
	if err != nil {
		return err
	}
	isHeld := func(address string) bool { return slices.Contains(held, address) }
	held = append(held, slices.DeleteFunc(slices.Clone(s.Resources), isHeld)...)
	return cluster.Held(s.dir).Write(held)
}

// verifyAdopted looks up objects that Terraform reports as deleted, with the lookup that a create uses
// before it adopts an object. An object that still exists is a leftover. Without a lookup or an answer, the
// receipt reports that. Proxmox is verified elsewhere.
func (d *stageDestruction) verifyAdopted(ctx context.Context, addresses []string) error {
	var objects []event.OwnedObject
	asked := map[string]bool{}
	for i := range d.stage.Record.Adopts {
		a := &d.stage.Record.Adopts[i]
		if !a.Left && !slices.Contains(addresses, a.Address) {
			continue
		}
		object, err := lookUp(ctx, d.run.Cluster, a.Exists)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil {
			d.run.Notice(fmt.Sprintf("%s: nobody can tell whether %s is gone: %v", d.stage.Record.Name,
				a.Address, err))
			continue
		}
		asked[a.Address], a.Left = true, !object.Gone
		objects = append(objects, object)
	}
	d.whole.receipt.noteUnverified(d.stage, addresses, asked)
	if err := d.whole.receipt.note(d.stage.Record.Name, objects); err != nil {
		// The state does not know it any more; the next destroy has to ask again.
		return errors.Join(err, d.stage.dir.SetRecord(d.stage.Record))
	}
	return nil
}

// lookUp looks up the object of an adoption.
func lookUp(
	ctx context.Context, c *cluster.Cluster, exists state.RecordedCheck,
) (object event.OwnedObject, err error) {
	types := cluster.ExistsTypes()
	i := slices.IndexFunc(types, func(t gate.ExistsType) bool { return t.Name == exists.Type })
	if i < 0 {
		return object, fmt.Errorf("this castle has no lookup of type %s", exists.Type)
	}
	values, err := exists.Decode()
	if err != nil {
		return object, err
	}
	target, err := c.RecordedTarget()
	if err != nil {
		return object, err
	}
	question, err := types[i].New(exists.Type, target, values)
	if err != nil {
		return object, err
	}
	there, err := question.Lookup(ctx)
	object = event.OwnedObject{Kind: question.Object.Kind, ID: question.Object.ID, Gone: !there}
	if there {
		object.Reason, object.Fix = "still there", question.Object.Fix
	}
	return object, err
}

// verify checks which objects of the stage still exist: in the datacenter, by the recorded preflights, and
// in the state. An object that cannot be checked does not count as gone.
func (d *stageDestruction) verify(ctx context.Context) error {
	st, err := d.stage.dir.State()
	if err != nil {
		return err
	}
	d.stage.state = st
	objects, err := d.verifyOwned(ctx)
	if err == nil {
		err = d.noteUnknown(ctx)
	}
	if err != nil {
		return err
	}
	err = d.inspectRecorded(ctx, func(_ string, f gate.Inspection) {
		remains := func(o event.OwnedObject) bool { return o.Kind == platform.Machine && !o.Gone }
		if slices.ContainsFunc(objects, remains) {
			return // it says the same
		}
		if objects = append(objects, f.Proof...); len(f.Proof) > 0 {
			return
		}
		for _, id := range f.Present {
			objects = append(objects, event.OwnedObject{
				Kind: "machine", ID: id, Reason: "still there", Fix: "remove it by hand",
			})
		}
	})
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil && !slices.ContainsFunc(objects, isLeft) {
		objects = append(objects, event.OwnedObject{
			Kind: "machines", ID: "of stage " + d.stage.Record.Name, Reason: "not proved: " + err.Error(),
		})
	}
	if !d.stage.EndsWithCluster {
		for _, res := range st.Managed() {
			objects = append(objects,
				event.OwnedObject{Kind: "resource", ID: res.Address, Reason: "Terraform has it in its state"})
		}
	}
	return d.whole.receipt.note(d.stage.Record.Name, objects)
}

// noteUnknown notes machines that are no stage's and look like the cluster's own, such as a restored backup.
// Where the datacenter does not answer, its own objects are not proved gone.
func (d *stageDestruction) noteUnknown(ctx context.Context) error {
	var known []gate.Known
	for _, s := range append([]*Stage{d.stage}, d.whole.all...) {
		owned, err := s.owned()
		if err != nil {
			return err
		}
		for _, o := range owned {
			if o.Kind == platform.Machine {
				known = append(known, gate.Known{MachineID: gate.MachineID{ID: o.ID(), UUID: o.UUID}})
			}
		}
		if len(known) == 0 { // the stage itself has made none
			return nil
		}
	}
	datacenter, err := d.whole.datacenter(d.stage)
	if err != nil {
		return nil
	}
	found, _, err := datacenter.Unrecorded(ctx, d.run.Cluster.Config.Name, nil, known)
	if err == nil {
		d.whole.receipt.noteUnknown(found)
	}
	return ctx.Err()
}

// verifyOwned looks the stage's machines, disks and files up in the datacenter.
func (d *stageDestruction) verifyOwned(ctx context.Context) (objects []event.OwnedObject, err error) {
	owned, err := d.stage.owned()
	if err != nil || len(owned) == 0 {
		return nil, err
	}
	datacenter, err := d.whole.datacenter(d.stage)
	if err != nil {
		return []event.OwnedObject{{
			Kind: "stage", ID: d.stage.Record.Name,
			Reason: "what it had in the datacenter is not proved gone: " + err.Error(),
		}}, nil
	}
	err = d.run.Step(d.stage.Record.Name, d.stage.Record.Layer, "proof", func() error {
		objects, err = datacenter.Gone(ctx, owned, d.run.Notice)
		return err
	})
	return objects, err
}
