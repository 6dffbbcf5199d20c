package check

import (
	"fmt"
	"net/netip"

	"github.com/hashicorp/hcl/v2"

	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/tfeval"
)

// Reservations are the addresses and VM ids of a cluster, which no other one may have.
type Reservations struct {
	Cluster   string // blue/proxmox
	Network   netip.Prefix
	Gateway   netip.Addr
	Addresses []AddressRange
	VMIDs     []IDRange

	cluster *cluster
}

// AddressRange is a range of addresses and its owner, such as "node cp-01". Both ends belong to it.
type AddressRange struct {
	What        string
	First, Last netip.Addr

	at hcl.Range // where it is written
}

// holds reports whether an address is in the range.
func (r AddressRange) holds(a netip.Addr) bool {
	return r.First.IsValid() && a.IsValid() && r.First.Compare(a) <= 0 && a.Compare(r.Last) <= 0
}

// overlaps reports whether two ranges share addresses.
func (r AddressRange) overlaps(o AddressRange) bool { return r.holds(o.First) || o.holds(r.First) }

// IDRange is a range of VM ids. Both ends belong to it; the zero range is none.
type IDRange struct{ First, Last int }

func (r IDRange) String() string { return fmt.Sprintf("%d-%d", r.First, r.Last) }

// ReservationsOf returns the reservations of a cluster. The cluster may have problems.
func ReservationsOf(c *config.Cluster) Reservations {
	x := newCluster(c, config.Options{})
	r := Reservations{Cluster: x.label, Network: x.network, Gateway: x.gateway.First, cluster: x,
		Addresses: x.hosts()}
	for _, p := range x.forwardPools() {
		r.Addresses = append(r.Addresses, p.addresses)
	}
	for _, a := range x.dns {
		if a.First.IsValid() {
			r.Addresses = append(r.Addresses, a)
		}
	}
	if x.ids != (IDRange{}) {
		r.VMIDs = append(r.VMIDs, x.ids)
	}
	for _, m := range x.machines {
		if m.id != 0 {
			r.VMIDs = append(r.VMIDs, IDRange{m.id, m.id})
		}
	}
	return r
}

// Text returns the value of a variable that is a string.
func (r Reservations) Text(variable string) string {
	return tfeval.Text(r.cluster.variable(variable).Value)
}

// hosts are the machines and the VIP, as far as their addresses are known.
func (c *cluster) hosts() []AddressRange {
	var all []AddressRange
	for _, m := range c.machines {
		if m.address.First.IsValid() {
			all = append(all, m.address)
		}
	}
	if c.vip.First.IsValid() {
		all = append(all, c.vip)
	}
	return all
}
