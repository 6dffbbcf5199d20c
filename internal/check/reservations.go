package check

import (
	"net/netip"

	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/tfeval"
)

// Claims is what a cluster has for itself, as far as its files say so: what no
// other one may have.
type Claims struct {
	Cluster   string // blue/proxmox
	Network   netip.Prefix
	Gateway   netip.Addr
	Addresses []AddressRange
	VMIDs     []IDRange

	cluster *cluster
}

// AddressRange is addresses and what they are: "node cp-01". Both ends belong to it.
type AddressRange struct {
	What        string
	First, Last netip.Addr
}

// IDRange is a range of VM ids. Both ends belong to it.
type IDRange struct{ First, Last int }

// Claimed returns what a cluster claims. It need not be without problems.
func Claimed(c *config.Cluster) Claims {
	x := newCluster(c)
	claims := Claims{Cluster: x.label, Network: x.network, Gateway: x.gateway, cluster: x}
	for _, h := range x.holders() {
		claims.Addresses = append(claims.Addresses, AddressRange{h.what, h.address, h.address})
	}
	for _, p := range x.good() {
		claims.Addresses = append(claims.Addresses, AddressRange{"the pool " + p.text, p.first, p.last})
	}
	for _, a := range x.dns {
		if a.IsValid() {
			claims.Addresses = append(claims.Addresses, AddressRange{"a name server", a, a})
		}
	}
	if x.ids != (span{}) {
		claims.VMIDs = append(claims.VMIDs, IDRange{x.ids.first, x.ids.last})
	}
	for _, m := range x.machines {
		if m.id != 0 {
			claims.VMIDs = append(claims.VMIDs, IDRange{m.id, m.id})
		}
	}
	return claims
}

// Text returns what the cluster says for a variable, if that is a text.
func (c Claims) Text(variable string) string { return tfeval.Text(c.cluster.variable(variable).Value) }
