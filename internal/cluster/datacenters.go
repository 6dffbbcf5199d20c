package cluster

import (
	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/proxmox"
	"github.com/ephemeral-castle/castle/internal/state"
)

// datacenter is one that a stage's preflight was recorded to have asked, and the
// ids that it asked about.
type Datacenter struct {
	Options proxmox.Options
	Ids     []int
}

// datacentersOf reads from a record which datacenters a stage's machines are in.
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
