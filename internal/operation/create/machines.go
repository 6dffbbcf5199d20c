package create

import (
	"context"
	"slices"
	"strings"

	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/run/waiting"
	"github.com/ephemeral-castle/castle/internal/state"
	"github.com/ephemeral-castle/castle/internal/terraform"
)

// guard returns the guard of the machines that the plan creates or deletes.
func (a *attempt) guard() (*waiting.Guard, error) {
	g := &waiting.Guard{}
	for _, p := range a.stage.Preflights {
		bound, err := waiting.BindPreflight(a.run, a.stage, p)
		if err != nil {
			return nil, err
		}
		if bound.Look != nil {
			g.Preflights = append(g.Preflights, bound)
		}
	}
	for _, o := range a.objects {
		if id, created := plannedID(o); created {
			g.Creates = append(g.Creates, gate.Known{Address: o.Address, Type: o.Type, MachineID: id})
		}
	}
	st, err := a.run.ReadState(a.dir)
	if err != nil {
		return nil, err
	}
	g.Deletes, err = waiting.ExpectedResources(a.dir, st)
	return g, err
}

// recordMachineIDs records the identity of each machine that a plan creates, before it exists. An identity
// that was read afterwards could be that of a foreign machine that the provider has taken for its own.
func recordMachineIDs(dir *state.Stage, objects []terraform.Object, run string) error {
	objects = slices.DeleteFunc(slices.Clone(objects), func(o terraform.Object) bool {
		_, created := plannedID(o)
		return !created
	})
	ids, err := cluster.MachineIDs(dir).Value()
	if err != nil || len(objects) == 0 {
		return err
	}
	for _, o := range objects {
		id, _ := plannedID(o)
		id.Instance = run
		if was := cluster.MachineIDOf(ids, o.Address); o.Action == "replace" && was.UUID != id.UUID {
			id.Replaces = was.UUID
		}
		ids = slices.DeleteFunc(ids, func(old gate.MachineID) bool { return old.Address == o.Address })
		if id.UUID != "" {
			ids = append(ids, id)
		}
	}
	return cluster.MachineIDs(dir).Write(ids)
}

// plannedID returns the identity of a machine that a plan creates; without a uuid if the plan has none.
func plannedID(o terraform.Object) (id gate.MachineID, created bool) {
	_, vm, known := strings.Cut(o.ID, "/")
	created = known && cluster.Platforms().IsMachine(o.Type) && o.Action != "update"
	return gate.MachineID{Address: o.Address, ID: vm, UUID: o.UUID}, created
}

// noteMachineIDs records the identities of the machines in the stage's state that have no earlier record.
func (a *attempt) noteMachineIDs(ctx context.Context) error {
	var ids []gate.MachineID
	for _, p := range a.stage.Preflights {
		if !p.Type.HasMachineIDs {
			continue
		}
		found, err := waiting.Inspect(ctx, a.run, a.stage, p)
		if err != nil {
			return err
		}
		ids = append(ids, found.MachineIDs...)
	}
	before, err := cluster.MachineIDs(a.dir).Value()
	if err != nil {
		return err
	}
	for _, old := range before { // also of a machine that is not there any more
		read := cluster.MachineIDOf(ids, old.Address)
		if read.ID != "" && (read.ID != old.ID || read.UUID == old.UUID) {
			// What it has replaced is gone.
			old.ID, old.UUID, old.Node, old.Replaces = read.ID, read.UUID, read.Node, ""
		}
		ids = slices.DeleteFunc(ids, func(id gate.MachineID) bool { return id.Address == old.Address })
		ids = append(ids, old)
	}
	if len(ids) == 0 {
		return nil
	}
	return cluster.MachineIDs(a.dir).Write(ids)
}
