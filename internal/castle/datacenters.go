package castle

import (
	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/proxmox"
	"github.com/ephemeral-castle/castle/internal/state"
)

// datacenter is one that a stage's preflight was recorded to have asked, and the
// ids that it asked about.
type datacenter struct {
	proxmox.Options
	ids []int
}

// datacentersOf reads from a record which datacenters a stage's machines are in.
func datacentersOf(rec state.Record) ([]datacenter, error) {
	var all []datacenter
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
		all = append(all, datacenter{options, ids})
	}
	return all, nil
}
