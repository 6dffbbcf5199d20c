package check

import (
	"net/netip"
	"testing"

	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/stages"
)

// Talos asks no DHCP server by itself any more when one of its cards is configured. An existing machine would
// lose the address by which castle reaches it.
func TestASecondaryAddressKeepsTheFirstOne(t *testing.T) {
	options := config.Options{Repository: "../..", Cluster: "iron", Library: stages.Library}
	c, _ := config.Load(options) // without the types of gates, which it then misses
	machines := render(newCluster(c, options))
	if len(machines) != 2 {
		t.Fatalf("%d machines", len(machines))
	}
	for _, m := range machines {
		links := m.config.NetworkCommonLinkConfigs()
		if len(links) != 1 || links[0].Name() != "uplink" || m.config.RunDefaultDHCPOperators() {
			t.Fatalf("%s: links %v", m.machine, links)
		}
		want := map[string]string{"cp-01": "fd00:192:168:1::121/64", "worker-01": "fd00:192:168:1::122/64"}
		if own := links[0].Addresses(); len(own) != 1 ||
			own[0].Address() != netip.MustParsePrefix(want[m.machine]) {
			t.Errorf("%s: addresses %v", m.machine, own)
		}
		if routes := links[0].Routes(); len(routes) != 1 ||
			routes[0].Gateway().ValueOrZero() != netip.MustParseAddr("fd00:192:168:1::1") {
			t.Errorf("%s: routes %v", m.machine, routes)
		}
		asks := m.config.NetworkDHCPv4Configs()
		if m.machine == "worker-01" && len(asks) != 0 || // it has its address without DHCP
			m.machine == "cp-01" && (len(asks) != 1 || asks[0].Name() != "uplink") {
			t.Errorf("%s asks for a lease: %v", m.machine, asks)
		}
	}
}
