package run

import (
	"slices"
	"strings"
	"testing"

	"github.com/zclconf/go-cty/cty"

	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/event"
	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/secret"
	"github.com/ephemeral-castle/castle/internal/state"
)

type told []string

func (t *told) Report(e event.Event) { *t = append(*t, e.Text) }

// The first lease of a machine is its address from then on, whatever the DHCP server gives it later.
func TestTheFirstLeaseOfAMachineIsHeld(t *testing.T) {
	dir, err := state.Open(t.TempDir(), "blue", "proxmox")
	if err != nil {
		t.Fatal(err)
	}
	var notices told
	c := &cluster.Cluster{Dir: dir, Masker: &secret.Masker{}, Config: &config.Cluster{Name: "blue"},
		Options: cluster.Options{Reporter: &notices}}
	r := &Run{Cluster: c, Outputs: NewOutputs(c.Masker)}
	s := &config.Stage{Name: "machines", Layer: cluster.PlatformLayer}
	document := cluster.MachineIDs(dir.Stage(s.Name))
	const address = `proxmox_virtual_environment_vm.node["worker-01"]`
	machines := cty.ObjectVal(map[string]cty.Value{"worker-01": cty.ObjectVal(map[string]cty.Value{
		"role": cty.StringVal("worker"), "address": cty.NullVal(cty.String)})})
	if err := document.Write([]gate.MachineID{{Address: address, ID: "424", UUID: "u"}}); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct{ tells, is, fails string }{
		{"", "", "machine worker-01 has no address"},
		{"192.168.1.50", "192.168.1.50", ""},
		{"192.168.1.50", "192.168.1.50", ""},
		{"", "192.168.1.50", ""}, // the machine is off
		{"192.168.1.61", "192.168.1.50", "has the address 192.168.1.61 now, and the cluster knows it by " +
			"192.168.1.50\n  let the DHCP server reserve 192.168.1.50 for BC:24:11:00:00:01,"},
	} {
		lease := cty.NullVal(cty.String)
		if step.tells != "" {
			lease = cty.StringVal(step.tells)
		}
		outputs := map[string]state.Output{
			cluster.MachinesOutput: {Value: machines},
			cluster.LeasesOutput: {Value: cty.ObjectVal(map[string]cty.Value{"worker-01": cty.ObjectVal(
				map[string]cty.Value{"address": lease, "mac_address": cty.StringVal("BC:24:11:00:00:01")})})},
		}
		err := r.holdLeases(s, outputs)
		if step.fails == "" && err != nil || step.fails != "" && (err == nil ||
			!strings.Contains(err.Error(), step.fails)) {
			t.Errorf("the agent tells %q: %v, want %q", step.tells, err, step.fails)
		}
		r.Outputs.Set(s, withRecorded(dir.Stage(s.Name), outputs))
		if is := r.Outputs.Machines(); len(is) != 1 || is[0].Address != step.is {
			t.Errorf("the agent tells %q: the machines are %v", step.tells, is)
		}
	}
	if !slices.Equal(notices, told{"machine worker-01 has the address 192.168.1.50; let the DHCP server " +
		"reserve it for BC:24:11:00:00:01"}) {
		t.Errorf("notices: %q", notices)
	}
}
