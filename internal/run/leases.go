package run

import (
	"errors"
	"fmt"

	"github.com/zclconf/go-cty/cty"

	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/state"
	"github.com/ephemeral-castle/castle/internal/terraform"
	"github.com/ephemeral-castle/castle/internal/tfeval"
)

// address sets the address of each machine that has none of its own: the one that a DHCP server has given it,
// which is unknown until the machine has told it.
func address(outputs map[string]cty.Value) {
	machines, leases := tfeval.Map(outputs[cluster.MachinesOutput]), tfeval.Map(outputs[cluster.LeasesOutput])
	for name, m := range machines {
		own := tfeval.Map(m)
		if a, has := own["address"]; !has || !a.IsNull() {
			continue
		}
		own["address"] = cty.UnknownVal(cty.String)
		if lease := tfeval.Text(tfeval.Attribute(leases[name], "address")); lease != "" {
			own["address"] = cty.StringVal(lease)
		}
		machines[name] = cty.ObjectVal(own)
		outputs[cluster.MachinesOutput] = cty.ObjectVal(machines)
	}
}

// holdLeases records the first lease of each machine in a stage's outputs: etcd and certificates have that
// address. It is an error where a machine has told none, or has another one by now.
func (r *Run) holdLeases(s *config.Stage, outputs map[string]state.Output) error {
	leases := tfeval.Map(outputs[cluster.LeasesOutput].Value)
	if len(leases) == 0 {
		return nil
	}
	document := cluster.MachineIDs(r.Cluster.Dir.Stage(s.Name))
	ids, err := document.Value()
	if err != nil {
		return err
	}
	var errs []error
	for i, id := range ids {
		name, _ := terraform.KeyOf(id.Address)
		lease, told := leases[name]
		now := tfeval.Text(tfeval.Attribute(lease, "address"))
		card := tfeval.Text(tfeval.Attribute(lease, "mac_address"))
		switch {
		case !told, now == "" && id.Lease != "", now != "" && now == id.Lease:
		case now == "":
			errs = append(errs, fmt.Errorf("machine %s has no address: its guest agent has told none of the "+
				"machines' network\n  its console shows what the card %s waits for; then %s", name, card,
				r.Cluster.Command("create")))
		case id.Lease == "":
			ids[i].Lease = now
			r.Notice(fmt.Sprintf("machine %s has the address %s; let the DHCP server reserve it for %s",
				name, now, card))
		default:
			errs = append(errs, fmt.Errorf("machine %s has the address %s now, and the cluster knows it by "+
				"%s\n  let the DHCP server reserve %[3]s for %s, and restart the machine", name, now,
				id.Lease, card))
		}
	}
	return errors.Join(append(errs, document.Write(ids))...)
}
