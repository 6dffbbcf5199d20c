package cluster

import (
	"slices"

	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/proxmox"
	"github.com/ephemeral-castle/castle/internal/state"
)

// A machine's id is given to another one when it is gone, and the state does not
// notice: it has no more than the id, and perhaps an address that was chosen. So
// castle keeps, beside the state, by which each machine can be told from every
// other, as it was seen after the last apply.

func MachineIDsNote(dir *state.Stage) state.Document[[]gate.MachineID] {
	return state.StageDocument[[]gate.MachineID](dir, "machines")
}

// marksOf reads what was noted of a stage's things; nothing if nothing was.
func MachineIDs(dir *state.Stage) ([]gate.MachineID, error) { return MachineIDsNote(dir).Value() }

func MachineIDOf(ids []gate.MachineID, address string) gate.MachineID {
	i := slices.IndexFunc(ids, func(m gate.MachineID) bool { return m.Address == address })
	if i < 0 {
		return gate.MachineID{}
	}
	return ids[i]
}

// disown has no later destroy ask for these things any more.
func UntrackOwned(dir *state.Stage, things []proxmox.Owned) error {
	traces, err := Owned(dir)
	if err != nil || len(traces) == 0 {
		return err
	}
	return OwnedNote(dir).Write(proxmox.Without(traces, things...))
}

func HeldNote(dir *state.Stage) state.Document[[]string] {
	return state.StageDocument[[]string](dir, "held")
}

// heldBy reads what a destroy has held; nothing if none has come as far as that.
func Held(dir *state.Stage) ([]string, error) { return HeldNote(dir).Value() }

// letLoose has no later destroy prove what these addresses stood for.
func UntrackHeld(dir *state.Stage, addresses []string) error {
	held, err := Held(dir)
	if err != nil || len(held) == 0 {
		return err
	}
	return HeldNote(
		dir,
	).Write(slices.DeleteFunc(held, func(address string) bool { return slices.Contains(addresses, address) }))
}

func OwnedNote(dir *state.Stage) state.Document[[]proxmox.Owned] {
	return state.StageDocument[[]proxmox.Owned](dir, "owned")
}

// ownedBy reads what was remembered of a stage; nothing if no destroy has come
// as far as that.
func Owned(dir *state.Stage) ([]proxmox.Owned, error) { return OwnedNote(dir).Value() }

// known lists the managed resources of a state, with what castle has noted of
// the things that they stand for.
func Known(st *state.State, ids ...gate.MachineID) []gate.Known {
	var all []gate.Known
	for _, res := range st.Resources {
		if res.Mode == ManagedMode {
			all = append(
				all,
				gate.Known{
					Address:    res.Address,
					Type:       res.Type,
					Attributes: res.Attributes,
					MachineID:  MachineIDOf(ids, res.Address),
				},
			)
		}
	}
	return all
}

// managed is the mode of a resource that Terraform owns; the other is "data".
const ManagedMode = "managed"

func HasResource(st *state.State, address string) bool {
	for _, res := range st.Resources {
		if res.Address == address {
			return true
		}
	}
	return false
}
