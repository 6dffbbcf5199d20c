package cluster

import (
	"slices"

	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/proxmox"
	"github.com/ephemeral-castle/castle/internal/state"
)

// MachineIDs records the identity of each machine of a stage, as of its last apply. The state has only the VM
// id, which Proxmox reuses for another machine.
func MachineIDs(dir *state.Stage) state.Document[[]gate.MachineID] {
	return state.StageDocument[[]gate.MachineID](dir, "machines")
}

// MachineIDOf returns the identity of the machine at an address, or the zero value.
func MachineIDOf(ids []gate.MachineID, address string) gate.MachineID {
	for _, id := range ids {
		if id.Address == address {
			return id
		}
	}
	return gate.MachineID{}
}

// Held records the addresses that a destroy removed from the state before it verified them.
func Held(dir *state.Stage) state.Document[[]string] {
	return state.StageDocument[[]string](dir, "held")
}

// UntrackHeld removes addresses from those that a later destroy verifies.
func UntrackHeld(dir *state.Stage, addresses []string) error {
	held, err := Held(dir).Value()
	if err != nil || len(held) == 0 {
		return err
	}
	removed := func(address string) bool { return slices.Contains(addresses, address) }
	return Held(dir).Write(slices.DeleteFunc(held, removed))
}

// Owned records the datacenter objects that a destroy of the stage has to verify.
func Owned(dir *state.Stage) state.Document[[]proxmox.Owned] {
	return state.StageDocument[[]proxmox.Owned](dir, "owned")
}

// UntrackOwned removes objects from those that a later destroy verifies.
func UntrackOwned(dir *state.Stage, objects []proxmox.Owned) error {
	owned, err := Owned(dir).Value()
	if err != nil || len(owned) == 0 {
		return err
	}
	return Owned(dir).Write(proxmox.Without(owned, objects...))
}

// Known lists the managed resources of a state, with the recorded identities of their machines.
func Known(st *state.State, ids ...gate.MachineID) []gate.Known {
	var all []gate.Known
	for _, res := range st.Managed() {
		all = append(all, gate.Known{
			Address: res.Address, Type: res.Type, Attributes: res.Attributes,
			MachineID: MachineIDOf(ids, res.Address),
		})
	}
	return all
}

// ManagedMode is the mode of a resource that Terraform manages; the other is "data".
const ManagedMode = "managed"

// Datacenter is one that a stage's recorded preflight read, and the VM ids that it checked.
type Datacenter struct {
	Options proxmox.Options
	Ids     []int
}

// Datacenters returns the datacenters of a recorded stage's machines.
func Datacenters(rec state.Record) ([]Datacenter, error) {
	var all []Datacenter
	for _, check := range rec.Preflights {
		if check.Type != proxmox.PreflightVMIDs {
			continue
		}
		values, err := check.Decode()
		if err != nil {
			return nil, err
		}
		options, ids, err := proxmox.Recorded(gate.Values(values))
		if err != nil {
			return nil, err
		}
		all = append(all, Datacenter{options, ids})
	}
	return all, nil
}
