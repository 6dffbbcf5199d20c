package scaffold

import (
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strconv"

	"github.com/ephemeral-castle/castle/internal/check"
)

// What the answers say, once they are there.

func (o *Order) network() netip.Prefix          { return o.values["network"].(netip.Prefix) }
func (o *Order) address(name string) netip.Addr { a, _ := o.values[name].(netip.Addr); return a }
func (o *Order) count(name string) int          { n, _ := o.values[name].(int); return n }
func (o *Order) machines() int                  { return o.count("control_planes") + o.count("workers") }

// available says why an address cannot be the cluster's. What is answered to the
// keys of which this one is asked, or that come later, does not count.
func (o *Order) available(a netip.Addr, besides ...string) error {
	if err := o.usable(a); err != nil {
		return err
	}
	if who := o.holder(a, besides...); who != "" {
		return fmt.Errorf("%s is %s", a, who)
	}
	return nil
}

// holder says who has an address already, "" if nobody of whom is known here.
func (o *Order) holder(a netip.Addr, besides ...string) string {
	counts := func(key string) bool { return !slices.Contains(besides, key) }
	nodes, _ := o.values["node_addresses"].([]netip.Addr)
	switch {
	case a == o.address("gateway"):
		return "the gateway's"
	case a == o.address("dns"):
		return "the name server's"
	case counts("vip") && a == o.address("vip"):
		return "the VIP"
	case counts("node_addresses") && slices.Contains(nodes, a):
		return "a machine's"
	case o.proxmox() == a:
		return "that of Proxmox"
	}
	for _, c := range o.others {
		for _, r := range c.Addresses {
			if r.First.Compare(a) <= 0 && a.Compare(r.Last) <= 0 {
				return fmt.Sprintf("that of %s of cluster %s", r.What, c.Cluster)
			}
		}
	}
	return ""
}

// proxmox is the host's address, if the endpoint names one.
func (o *Order) proxmox() netip.Addr {
	text, _ := o.values["proxmox_endpoint"].(string)
	u, err := url.Parse(text)
	if err != nil {
		return netip.Addr{}
	}
	a, _ := netip.ParseAddr(u.Hostname()) //nolint:errcheck // a host name has none
	return a
}

// farthest is how many addresses are looked at for free ones.
const farthest = 1 << 16

// free returns the first of n free addresses in a row, from start upward.
func (o *Order) free(start netip.Addr, n int) (netip.Addr, bool) {
	for a, i := start, 0; i < farthest && o.network().Contains(a); a, i = a.Next(), i+1 {
		if o.row(a, n) {
			return a, true
		}
	}
	return netip.Addr{}, false
}

// row reports whether an address and those after it are free, n in all.
func (o *Order) row(a netip.Addr, n int) bool {
	for range n {
		if o.available(a) != nil {
			return false
		}
		a = a.Next()
	}
	return true
}

func span(first netip.Addr, n int) string {
	end := first
	for range n - 1 {
		end = end.Next()
	}
	return first.String() + "-" + end.String()
}

// last is the broadcast address of a network.
func last(p netip.Prefix) netip.Addr {
	b := p.Masked().Addr().As4()
	for bit := p.Bits(); bit < 32; bit++ {
		b[bit/8] |= 1 << (7 - bit%8)
	}
	return netip.AddrFrom4(b)
}

const poolSize = 10

// proposeVIP looks from the network's end downward, away from where routers begin
// to give addresses, for room for VIP, machines and pool in one block.
func proposeVIP(o *Order) string {
	for _, size := range []int{1 + o.machines() + poolSize, 1 + o.machines() + 1, 1} {
		for _, round := range []byte{10, 1} {
			a := last(o.network())
			for i := 0; i < farthest && o.network().Contains(a); a, i = a.Prev(), i+1 {
				if a.As4()[3]%round == 0 && o.row(a, size) {
					return a.String()
				}
			}
		}
	}
	return ""
}

func proposeNodes(o *Order) string {
	return o.proposeRange(o.address("vip").Next(), o.machines())
}

func proposeLonghornDisk(o *Order) string {
	if o.values["install_disk"] == "/dev/sdb" {
		return "/dev/sda"
	}
	return "/dev/sdb"
}

func proposePool(o *Order) string {
	nodes := o.values["node_addresses"].([]netip.Addr)
	for size := poolSize; size > 0; size /= 2 {
		if text := o.proposeRange(nodes[len(nodes)-1].Next(), size); text != "" {
			return text
		}
	}
	return ""
}

// proposeRange looks behind start first, then in the whole network.
func (o *Order) proposeRange(start netip.Addr, n int) string {
	for _, from := range []netip.Addr{start, o.network().Addr()} {
		if first, ok := o.free(from, n); ok {
			return span(first, n)
		}
	}
	return ""
}

// proposeNetwork proposes the network that all the others are in.
func proposeNetwork(o *Order) string {
	var said netip.Prefix
	for _, c := range o.others {
		switch {
		case !c.Network.IsValid() || c.Network == said:
		case said.IsValid():
			return ""
		default:
			said = c.Network
		}
	}
	if !said.IsValid() {
		return ""
	}
	return said.String()
}

func proposeGateway(o *Order) string {
	for _, c := range o.others {
		if c.Network == o.network() {
			return c.Gateway.String()
		}
	}
	return ""
}

const (
	firstID = 401 // proposed where nothing is known
	idStep  = 10
)

func proposeVMID(o *Order) string {
	for id := firstID; ; id += idStep {
		if _, _, taken := o.idTaken(id, o.lastID(id)); !taken {
			return strconv.Itoa(id)
		}
	}
}

// lastID is where a range of ids ends that has room to grow.
func (o *Order) lastID(first int) int {
	return first - 1 + (o.machines()+idStep-1)/idStep*idStep
}

// ids is the cluster's range: with room to grow, as far as that is nobody's.
func (o *Order) ids() check.IDRange {
	first := o.count("vmid_start")
	end := o.lastID(first)
	for {
		_, other, taken := o.idTaken(first, end)
		if !taken {
			return check.IDRange{First: first, Last: end}
		}
		end = other.First - 1
	}
}

// idTaken says whose a range of ids is. On which Proxmox does not matter: nodes of
// one datacenter have one range of ids, and different addresses.
func (o *Order) idTaken(first, end int) (string, check.IDRange, bool) {
	for _, c := range o.others {
		for _, r := range c.VMIDs {
			if first <= r.Last && r.First <= end {
				return c.Cluster, r, true
			}
		}
	}
	return "", check.IDRange{}, false
}
