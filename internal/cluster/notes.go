package cluster

import (
	"slices"

	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/proxmox"
	"github.com/ephemeral-castle/castle/internal/state"
)

// MachineIDsNote records the identity of each machine of a stage, as of its last apply. The state has only
// the VM id, which Proxmox reuses for another machine.
func MachineIDsNote(dir *state.Stage) state.Document[[]gate.MachineID] {
	return state.StageDocument[[]gate.MachineID](dir, "machines")
}

// MachineIDs reads the recorded identities of a stage's machines; none without a record.
func MachineIDs(dir *state.Stage) ([]gate.MachineID, error) { return MachineIDsNote(dir).Value() }

// MachineIDOf returns the identity of the machine at an address, or the zero value.
func MachineIDOf(ids []gate.MachineID, address string) gate.MachineID {
	i := slices.IndexFunc(ids, func(m gate.MachineID) bool { return m.Address == address })
	if i < 0 {
		return gate.MachineID{}
	}
	return ids[i]
}

// UntrackOwned removes objects from those that a later destroy verifies.
func UntrackOwned(dir *state.Stage, objects []proxmox.Owned) error {
	owned, err := Owned(dir)
	if err != nil || len(owned) == 0 {
		return err
	}
	return OwnedNote(dir).Write(proxmox.Without(owned, objects...))
}

// HeldNote records the addresses that a destroy removed from the state before it verified them.
func HeldNote(dir *state.Stage) state.Document[[]string] {
	return state.StageDocument[[]string](dir, "held")
}

// Held reads the addresses in HeldNote; none without a record.
func Held(dir *state.Stage) ([]string, error) { return HeldNote(dir).Value() }

// UntrackHeld removes addresses from those that a later destroy verifies.
func UntrackHeld(dir *state.Stage, addresses []string) error {
	held, err := Held(dir)
	if err != nil || len(held) == 0 {
		return err
	}
	return HeldNote(
		dir,
	).Write(slices.DeleteFunc(held, func(address string) bool { return slices.Contains(addresses, address) }))
}

// OwnedNote records the datacenter objects that a destroy of the stage has to verify.
func OwnedNote(dir *state.Stage) state.Document[[]proxmox.Owned] {
	return state.StageDocument[[]proxmox.Owned](dir, "owned")
}

// Owned reads the objects in OwnedNote; none without a record.
func Owned(dir *state.Stage) ([]proxmox.Owned, error) { return OwnedNote(dir).Value() }

// Known lists the managed resources of a state, with the recorded identities of their machines.
func Known(st *state.State, ids ...gate.MachineID) []gate.Known {
	var all []gate.Known
	for _, res := range st.Resources {
		if res.Mode == ManagedMode {
			all = append(
				all,
				gate.Known{
					Address: res.Address, Type: res.Type, Attributes: res.Attributes,
					MachineID: MachineIDOf(ids, res.Address),
				},
			)
		}
	}
	return all
}

// ManagedMode is the mode of a resource that Terraform manages; the other is "data".
const ManagedMode = "managed"

// HasResource reports whether a state contains an address.
func HasResource(st *state.State, address string) bool {
	for _, res := range st.Resources {
		if res.Address == address {
			return true
		}
	}
	return false
}
