package scaffold

import (
	"cmp"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strconv"

	"github.com/ephemeral-castle/castle/internal/check"
)

// answers are the valid answers so far, and the reservations of the other clusters.
type answers struct {
	cluster string
	values  map[string]any // by key, in the key's form
	others  []check.Reservations
}

func (a *answers) has(names ...string) bool {
	return !slices.ContainsFunc(names, func(name string) bool { _, is := a.values[name]; return !is })
}

// valueOf returns an answer, the zero value if there is none.
func valueOf[T any](a *answers, name string) T {
	v, _ := a.values[name].(T)
	return v
}

func (a *answers) network() netip.Prefix          { return valueOf[netip.Prefix](a, "network") }
func (a *answers) address(name string) netip.Addr { return valueOf[netip.Addr](a, name) }
func (a *answers) nodeAddresses() []netip.Addr    { return valueOf[[]netip.Addr](a, "node_addresses") }
func (a *answers) count(name string) int          { return valueOf[int](a, name) }
func (a *answers) machines() int                  { return a.count("control_planes") + a.count("workers") }

// checkUsable returns why no machine of the network can have an address.
func (a *answers) checkUsable(address netip.Addr) error {
	network := a.network()
	switch {
	case !network.Contains(address):
		return fmt.Errorf("%s is not in the network %s", address, network)
	case address == network.Addr() || address == broadcast(network):
		return fmt.Errorf("%s is the network's own or its broadcast address", address)
	}
	return nil
}

// checkFree returns why the cluster cannot have an address.
func (a *answers) checkFree(address netip.Addr) error {
	if err := a.checkUsable(address); err != nil {
		return err
	}
	if owner := a.owner(address); owner != "" {
		return fmt.Errorf("%s is %s", address, owner)
	}
	return nil
}

// owner describes the owner of an address, "" if none is known.
func (a *answers) owner(address netip.Addr) string {
	proxmox, err := url.Parse(valueOf[string](a, "proxmox_endpoint"))
	switch {
	case address == a.address("gateway"):
		return "the gateway's"
	case address == a.address("dns"):
		return "the name server's"
	case address == a.address("vip"):
		return "the VIP"
	case slices.Contains(a.nodeAddresses(), address):
		return "a machine's"
	case err == nil && proxmox.Hostname() == address.String():
		return "that of Proxmox"
	}
	for _, c := range a.others {
		for _, r := range c.Addresses {
			if r.First.Compare(address) <= 0 && address.Compare(r.Last) <= 0 {
				return fmt.Sprintf("that of %s of cluster %s", r.What, c.Cluster)
			}
		}
	}
	return ""
}

// within names an address in a network that another cluster has, "" if there is none.
func (a *answers) within(p netip.Prefix) string {
	for _, c := range a.others {
		for _, r := range c.Addresses {
			if p.Contains(r.First) || p.Contains(r.Last) {
				return fmt.Sprintf("%s of %s of cluster %s", r.First, r.What, c.Cluster)
			}
		}
	}
	return ""
}

// proposeCloudNetwork proposes the first network of 10.0.0.0/8 that no other cluster has. From 10.96.0.0 on,
// Talos has its own for Services and Pods.
func proposeCloudNetwork(a *answers) string {
	for n := range 96 {
		if p := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(n), 1, 0}), 24); a.within(p) == "" {
			return p.String()
		}
	}
	return ""
}

// searchLimit bounds the addresses that a search for free ones looks at.
const searchLimit = 1 << 16

// freeRow returns the last of n addresses from first on, and whether all are free.
func (a *answers) freeRow(first netip.Addr, n int) (last netip.Addr, free bool) {
	for address := first; n > 0; address, n = address.Next(), n-1 {
		if a.checkFree(address) != nil {
			return last, false
		}
		last = address
	}
	return last, true
}

// broadcast returns the broadcast address of a network.
func broadcast(p netip.Prefix) netip.Addr {
	b := p.Masked().Addr().As4()
	for bit := p.Bits(); bit < 32; bit++ {
		b[bit/8] |= 1 << (7 - bit%8)
	}
	return netip.AddrFrom4(b)
}

const poolSize = 10

// proposeVIP searches from the end of the network downward, because routers assign
// addresses from its start, for one block for VIP, machines and pool.
func proposeVIP(a *answers) string {
	for _, size := range []int{1 + a.machines() + poolSize, 1 + a.machines() + 1, 1} {
		for _, round := range []byte{10, 1} {
			address := broadcast(a.network())
			for i := 0; i < searchLimit && a.network().Contains(address); address, i = address.Prev(), i+1 {
				if _, free := a.freeRow(address, size); free && address.As4()[3]%round == 0 {
					return address.String()
				}
			}
		}
	}
	return ""
}

func proposeNodes(a *answers) string {
	vip := a.address("vip")
	if !vip.IsValid() { // a load balancer: the block may begin where the VIP would be
		vip, _ = netip.ParseAddr(proposeVIP(a)) // its own proposal
	}
	return a.proposeRange(vip.Next(), a.machines())
}

func proposePool(a *answers) string {
	nodes := a.nodeAddresses()
	for size := poolSize; size > 0; size /= 2 {
		if text := a.proposeRange(nodes[len(nodes)-1].Next(), size); text != "" {
			return text
		}
	}
	return ""
}

// proposeRange proposes n free addresses in a row, after start or else anywhere in the network.
func (a *answers) proposeRange(start netip.Addr, n int) string {
	for _, first := range []netip.Addr{start, a.network().Addr()} {
		for i := 0; i < searchLimit && a.network().Contains(first); first, i = first.Next(), i+1 {
			if last, free := a.freeRow(first, n); free {
				return first.String() + "-" + last.String()
			}
		}
	}
	return ""
}

func proposeLonghornDisk(a *answers) string {
	if a.values["install_disk"] == "/dev/sdb" {
		return "/dev/sda"
	}
	return "/dev/sdb"
}

// fromOthers proposes the value that all other clusters with this variable have.
func fromOthers(variable string) func(*answers) string {
	return func(a *answers) string {
		return common(a.others, func(c check.Reservations) string { return c.Text(variable) })
	}
}

// common returns the one value that is not empty, "" if there are several.
func common(all []check.Reservations, value func(check.Reservations) string) string {
	result := ""
	for _, c := range all {
		v := value(c)
		if v != "" && result != "" && v != result {
			return ""
		}
		result = cmp.Or(v, result)
	}
	return result
}

// proposeNetwork proposes the network of all other clusters.
func proposeNetwork(a *answers) string {
	return common(a.others, func(c check.Reservations) string {
		if !c.Network.IsValid() {
			return ""
		}
		return c.Network.String()
	})
}

func proposeGateway(a *answers) string {
	for _, c := range a.others {
		if c.Network == a.network() {
			return c.Gateway.String()
		}
	}
	return ""
}

const (
	firstID = 401 // of the first proposal
	idStep  = 10
)

func proposeVMID(a *answers) string {
	for id := firstID; ; id += idStep {
		if _, _, taken := a.idOwner(id, a.lastID(id)); !taken {
			return strconv.Itoa(id)
		}
	}
}

// lastID returns the end of a range of ids with room to grow.
func (a *answers) lastID(first int) int { return first - 1 + (a.machines()+idStep-1)/idStep*idStep }

// ids returns the cluster's range of ids, with room to grow up to the next cluster's.
func (a *answers) ids() check.IDRange {
	first := a.count("vmid_start")
	end := a.lastID(first)
	for {
		_, other, taken := a.idOwner(first, end)
		if !taken {
			return check.IDRange{First: first, Last: end}
		}
		end = other.First - 1
	}
}

// idOwner returns the cluster that reserves an id of a range. The endpoint does not
// matter: nodes of one datacenter share the ids and differ in their addresses.
func (a *answers) idOwner(first, end int) (string, check.IDRange, bool) {
	for _, c := range a.others {
		for _, r := range c.VMIDs {
			if first <= r.Last && r.First <= end {
				return c.Cluster, r, true
			}
		}
	}
	return "", check.IDRange{}, false
}
