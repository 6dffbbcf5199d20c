package cluster

import (
	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/proxmox"
	"github.com/ephemeral-castle/castle/internal/state"
)

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
