package datacenter

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/ephemeral-castle/castle/internal/emulator/talos"
)

// TestNoControlPlaneStartsWithoutItsAddress covers the configurations with which no kubelet or no API
// server would start.
func TestNoControlPlaneStartsWithoutItsAddress(t *testing.T) {
	for _, c := range []struct{ services, subnets, want string }{
		{"10.96.0.0/12", "", ""},
		{"10.96.0.0/12,fd00:10:96::/112", "", ""},
		{"fd00:10:96::/112,10.96.0.0/12", "",
			"kube-apiserver: cp has no address of the family of fd00:10:96::/112"},
		{"10.96.0.0/12", "192.0.2.0/24", ""},
		{"10.96.0.0/12", "10.0.0.0/8", "kubelet: no suitable node IP found for cp in 10.0.0.0/8"},
		{"10.96.0.0/12", "192.0.2.0/24,!192.0.2.1/32", "kubelet: no suitable node IP found for cp"},
	} {
		m := talos.MachineSpec{Address: "192.0.2.1", Hostname: "cp", ControlPlane: true}
		if c.subnets != "" {
			m.NodeIPs = strings.Split(c.subnets, ",")
		}
		k := &kube{machines: map[string]talos.MachineSpec{m.Address: m}}
		why := k.refusal(talos.ClusterSpec{ServiceCIDRs: strings.Split(c.services, ",")})
		if (why == "") != (c.want == "") || !strings.HasPrefix(why, c.want) {
			t.Errorf("services %s, subnets %s: %q; want %q", c.services, c.subnets, why, c.want)
		}
	}
}

// A node has one address of each IP family, in the order of the networks of Services.
func TestANodeHasAnAddressOfEachFamily(t *testing.T) {
	both := talos.MachineSpec{Address: "192.0.2.1", Hostname: "cp", ControlPlane: true,
		Further: []netip.Prefix{netip.MustParsePrefix("fd00:1::1/64")}}
	for _, c := range []struct{ services, subnets, want string }{
		{"10.96.0.0/12", "", "192.0.2.1"},
		{"10.96.0.0/12,fd00:10:96::/112", "", "192.0.2.1,fd00:1::1"},
		{"fd00:10:96::/112,10.96.0.0/12", "", "fd00:1::1,192.0.2.1"},
		{"10.96.0.0/12,fd00:10:96::/112", "192.0.2.0/24,fd00:1::/64", "192.0.2.1,fd00:1::1"},
		{"10.96.0.0/12,fd00:10:96::/112", "192.0.2.0/24", "192.0.2.1"},
	} {
		m, services := both, strings.Split(c.services, ",")
		if c.subnets != "" {
			m.NodeIPs = strings.Split(c.subnets, ",")
		}
		addresses, why := nodeIPs(m, services)
		if strings.Join(addresses, ",") != c.want || why != "" {
			t.Errorf("services %s, subnets %q: %v, %s", c.services, c.subnets, addresses, why)
		}
		k := &kube{machines: map[string]talos.MachineSpec{m.Address: m}}
		if why := k.refusal(talos.ClusterSpec{ServiceCIDRs: services}); why != "" {
			t.Errorf("services %s, subnets %q: %s", c.services, c.subnets, why)
		}
	}
}
