package hcloud

import (
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"
)

const (
	mostSubnets = 50
	mostMembers = 100
)

func (s *Server) defineNetworks() {
	s.networks = &collection[schema.Network]{
		name: "network", plural: "networks", rows: map[int64]*schema.Network{},
		head: func(v *schema.Network) head {
			return head{&v.ID, &v.Name, &v.Labels, &v.Created, &v.Protection.Delete}
		},
		busy: conflicts, create: s.createNetwork, remove: s.deleteNetwork,
		verbs: map[string]verb[schema.Network]{
			"add_subnet": s.addSubnet, "delete_subnet": s.deleteSubnet,
			"add_route": s.addRoute, "delete_route": s.deleteRoute,
		},
	}
	serve(s, s.networks)
}

func (s *Server) createNetwork(c *call) (any, error) {
	in, err := decode[schema.NetworkCreateRequest](c)
	if err != nil {
		return nil, err
	}
	labels, err := s.networks.admit(c, in.Name, in.Labels)
	if err != nil {
		return nil, err
	}
	block, err := privateBlock(in.IPRange)
	if err != nil {
		return nil, err
	}
	v := &schema.Network{Name: in.Name, IPRange: block.String(), Labels: labels,
		Subnets: []schema.NetworkSubnet{},
		Routes:  []schema.NetworkRoute{}, Servers: []int64{}, LoadBalancers: []int64{}}
	for _, subnet := range in.Subnets {
		if subnet, err = newSubnet(v, subnet); err != nil {
			return nil, err
		}
		v.Subnets = append(v.Subnets, subnet)
	}
	s.networks.add(s, v)
	return map[string]any{"network": v}, nil
}

// privateBlock reads the block of a network: of RFC 1918, and at least a /24.
func privateBlock(text string) (netip.Prefix, error) {
	block, err := netip.ParsePrefix(text)
	if err != nil || !block.Addr().Is4() || !block.Addr().IsPrivate() || block.Bits() > 24 {
		return netip.Prefix{}, invalid("ip_range", "Must be a private IPv4 network of at least /24.")
	}
	return block.Masked(), nil
}

// newSubnet checks a subnet of a network, and completes it.
func newSubnet(v *schema.Network, in schema.NetworkSubnet) (schema.NetworkSubnet, error) {
	whole := netip.MustParsePrefix(v.IPRange)
	block, err := netip.ParsePrefix(in.IPRange)
	zone := func(l schema.Location) bool { return l.NetworkZone == in.NetworkZone }
	switch {
	case err != nil || !whole.Contains(block.Addr()) || block.Bits() < whole.Bits() || block.Bits() > 29:
		return in, invalid("ip_range", "Must be a subnet of the network's ip_range.")
	case in.Type != "cloud" && in.Type != "server":
		return in, invalid("type", "Must be one of: cloud, server.")
	case !slices.ContainsFunc(locations, zone):
		return in, invalid("network_zone", "unknown network zone")
	case len(v.Subnets) >= mostSubnets:
		return in, fail(http.StatusForbidden, "resource_limit_exceeded", "a network has at most %d subnets",
			mostSubnets)
	}
	for _, other := range v.Subnets {
		if netip.MustParsePrefix(other.IPRange).Overlaps(block) {
			return in, invalid("ip_range", "overlaps with the subnet "+other.IPRange)
		}
	}
	in.IPRange, in.Gateway = block.Masked().String(), whole.Addr().Next().String()
	return in, nil
}

// deleteNetwork detaches the members first.
func (s *Server) deleteNetwork(_ *call, v *schema.Network) (any, error) {
	delete(s.networks.rows, v.ID)
	for _, server := range s.servers.rows {
		server.PrivateNet = slices.DeleteFunc(server.PrivateNet, inNetwork(v.ID))
	}
	for _, b := range s.balancers.rows {
		b.PrivateNet = slices.DeleteFunc(b.PrivateNet, func(p schema.LoadBalancerPrivateNet) bool {
			return p.Network == v.ID
		})
	}
	return nil, nil
}

func inNetwork(id int64) func(schema.ServerPrivateNet) bool {
	return func(p schema.ServerPrivateNet) bool { return p.Network == id }
}

func (s *Server) addSubnet(c *call, v *schema.Network) (any, error) {
	in, err := decode[schema.NetworkActionAddSubnetRequest](c)
	if err != nil {
		return nil, err
	}
	subnet, err := newSubnet(v, schema.NetworkSubnet{Type: in.Type, IPRange: in.IPRange,
		NetworkZone: in.NetworkZone})
	if err != nil {
		return nil, err
	}
	return c.act("add_subnet", s.networks.ref(v), func() { v.Subnets = append(v.Subnets, subnet) }), nil
}

// deleteSubnet refuses a subnet with members. The provider compares the message, and tries again.
func (s *Server) deleteSubnet(c *call, v *schema.Network) (any, error) {
	in, err := decode[schema.NetworkActionDeleteSubnetRequest](c)
	if err != nil {
		return nil, err
	}
	wanted := func(n schema.NetworkSubnet) bool { return n.IPRange == in.IPRange }
	if !slices.ContainsFunc(v.Subnets, wanted) {
		return nil, fail(http.StatusNotFound, "not_found", "subnet not found")
	}
	block := netip.MustParsePrefix(in.IPRange)
	for address := range s.taken(v.ID) {
		if block.Contains(address) {
			return nil, refuse("service_error", "cannot remove subnet because servers are attached to it")
		}
	}
	return c.act("delete_subnet", s.networks.ref(v), func() {
		v.Subnets = slices.DeleteFunc(v.Subnets, wanted)
	}), nil
}

func (s *Server) addRoute(c *call, v *schema.Network) (any, error) {
	in, err := decode[schema.NetworkRoute](c)
	if err != nil {
		return nil, err
	}
	_, badTo := netip.ParsePrefix(in.Destination)
	_, badBy := netip.ParseAddr(in.Gateway)
	if badTo != nil || badBy != nil {
		return nil, invalid("destination", "Must be a CIDR, by the address of a gateway.")
	}
	return c.act("add_route", s.networks.ref(v), func() { v.Routes = append(v.Routes, in) }), nil
}

func (s *Server) deleteRoute(c *call, v *schema.Network) (any, error) {
	in, err := decode[schema.NetworkRoute](c)
	if err != nil {
		return nil, err
	}
	if !slices.Contains(v.Routes, in) {
		return nil, fail(http.StatusNotFound, "not_found", "route not found")
	}
	return c.act("delete_route", s.networks.ref(v), func() {
		v.Routes = slices.DeleteFunc(v.Routes, func(r schema.NetworkRoute) bool { return r == in })
	}), nil
}

// taken returns the private addresses of a network that its members have.
func (s *Server) taken(network int64) map[netip.Addr]bool {
	used := map[netip.Addr]bool{}
	mark := func(text string) {
		if a, err := netip.ParseAddr(text); err == nil {
			used[a] = true
		}
	}
	for _, server := range s.servers.rows {
		for _, p := range server.PrivateNet {
			if p.Network == network {
				mark(p.IP)
				for _, alias := range p.AliasIPs {
					mark(alias)
				}
			}
		}
	}
	for _, b := range s.balancers.rows {
		for _, p := range b.PrivateNet {
			if p.Network == network {
				mark(p.IP)
			}
		}
	}
	return used
}

// join finds the address of a new member of a network: the wanted one, else a free one in the wanted block.
func (s *Server) join(v *schema.Network, zone string, wanted, block *string) (string, error) {
	used := s.taken(v.ID)
	if len(used) >= mostMembers {
		return "", fail(http.StatusForbidden, "resource_limit_exceeded", "a network has at most %d members",
			mostMembers)
	}
	used[netip.MustParsePrefix(v.IPRange).Addr().Next()] = true // the gateway
	used[netip.MustParseAddr("172.31.1.1")] = true
	for _, subnet := range v.Subnets {
		within := netip.MustParsePrefix(subnet.IPRange)
		if subnet.NetworkZone != zone || block != nil && *block != subnet.IPRange {
			continue
		}
		if wanted == nil {
			isUsed := func(a netip.Addr) bool { return used[a] }
			if address, ok := nextAddress(within, within.Addr(), isUsed); ok {
				return address.String(), nil
			}
			continue
		}
		address, err := netip.ParseAddr(*wanted)
		if err != nil {
			return "", invalid("ip", "Not a valid IPv4 address.")
		}
		if within.Contains(address) {
			if used[address] || address == within.Addr() {
				return "", refuse("ip_not_available", "IP %s is not available", address)
			}
			return address.String(), nil
		}
	}
	if wanted != nil {
		return "", refuse("ip_not_available", "IP %s is in no subnet of the network", *wanted)
	}
	return "", refuse("no_subnet_available", "no free IP found in any subnet")
}

// plannedNets are the attachments with which a server is created.
func (s *Server) plannedNets(v *schema.Server, ids []int64) (all []schema.ServerPrivateNet, err error) {
	for _, id := range ids {
		network, err := s.networks.find(id)
		if err != nil {
			return nil, err
		}
		address, err := s.join(network, v.Location.NetworkZone, nil, nil)
		if err != nil {
			return nil, err
		}
		all = append(all, s.card(id, address))
	}
	return all, nil
}

// card is a server's interface in a network.
func (s *Server) card(network int64, address string, aliases ...string) schema.ServerPrivateNet {
	s.lastID++
	return schema.ServerPrivateNet{Network: network, IP: address, AliasIPs: append([]string{}, aliases...),
		MACAddress: fmt.Sprintf("86:00:%02x:%02x:%02x:%02x", byte(s.lastID>>24), byte(s.lastID>>16),
			byte(s.lastID>>8), byte(s.lastID))}
}

// plug puts a server into a network, if that still exists.
func (s *Server) plug(a *action, v *schema.Server, card schema.ServerPrivateNet) {
	if s.networks.rows[card.Network] != nil {
		v.PrivateNet = append(v.PrivateNet, card)
		a.tell(s, s.config.OnNetwork, v)
	}
}

func (s *Server) attach(c *call, v *schema.Server) (any, error) {
	in, err := decode[schema.ServerActionAttachToNetworkRequest](c)
	if err != nil {
		return nil, err
	}
	network, err := s.networks.find(in.Network)
	switch {
	case err != nil:
		return nil, err
	case slices.ContainsFunc(v.PrivateNet, inNetwork(network.ID)):
		return nil, refuse("server_already_attached", "server is already attached to the network")
	}
	for _, p := range v.PrivateNet {
		other := netip.MustParsePrefix(s.networks.rows[p.Network].IPRange)
		if other.Overlaps(netip.MustParsePrefix(network.IPRange)) {
			return nil, refuse("networks_overlap", "the networks overlap")
		}
	}
	address, err := s.join(network, v.Location.NetworkZone, in.IP, in.IPRange)
	if err != nil {
		return nil, err
	}
	aliases := []string{}
	for _, alias := range in.AliasIPs {
		aliases = append(aliases, *alias)
	}
	card := s.card(network.ID, address, aliases...)
	var a *action
	a = c.begin("attach_to_network", s.servers.ref(v), nil, func() { s.plug(a, v, card) })
	return map[string]any{"action": &a.view}, nil
}

func (s *Server) detach(c *call, v *schema.Server) (any, error) {
	in, err := decode[schema.ServerActionDetachFromNetworkRequest](c)
	if err != nil {
		return nil, err
	}
	if !slices.ContainsFunc(v.PrivateNet, inNetwork(in.Network)) {
		return nil, fail(http.StatusNotFound, "not_found", "server is not attached to the network")
	}
	var a *action
	a = c.begin("detach_from_network", s.servers.ref(v), nil, func() {
		v.PrivateNet = slices.DeleteFunc(v.PrivateNet, inNetwork(in.Network))
		a.tell(s, s.config.OnNetwork, v)
	})
	return map[string]any{"action": &a.view}, nil
}

// changeAliases replaces the whole list, which is how Talos' virtual IP moves.
func (s *Server) changeAliases(c *call, v *schema.Server) (any, error) {
	in, err := decode[schema.ServerActionChangeAliasIPsRequest](c)
	if err != nil {
		return nil, err
	}
	at := slices.IndexFunc(v.PrivateNet, inNetwork(in.Network))
	if at < 0 {
		return nil, fail(http.StatusNotFound, "not_found", "server is not attached to the network")
	}
	used := s.taken(in.Network)
	for _, alias := range in.AliasIPs {
		address, err := netip.ParseAddr(alias)
		if err != nil {
			return nil, invalid("alias_ips", "Not a valid IPv4 address.")
		}
		if used[address] && !slices.Contains(v.PrivateNet[at].AliasIPs, alias) {
			return nil, refuse("ip_not_available", "IP %s is not available", alias)
		}
	}
	return c.act("change_alias_ips", s.servers.ref(v), func() {
		if at := slices.IndexFunc(v.PrivateNet, inNetwork(in.Network)); at >= 0 {
			v.PrivateNet[at].AliasIPs = append([]string{}, in.AliasIPs...)
		}
	}), nil
}

// derive writes into each resource what others say about it. It runs before each answer.
func (s *Server) derive() {
	now := time.Now()
	for _, a := range s.actions {
		a.progress(now)
	}
	for _, v := range s.networks.rows {
		v.Servers, v.LoadBalancers = []int64{}, []int64{}
	}
	for _, server := range sorted(s.servers.rows) {
		server.Locked = s.locks[s.servers.ref(server)]
		server.LoadBalancers, server.Volumes, server.PlacementGroup = []int64{}, []int64{}, nil
		for _, p := range server.PrivateNet {
			v := s.networks.rows[p.Network]
			v.Servers = append(v.Servers, server.ID)
		}
	}
	for _, volume := range sorted(s.volumes.rows) {
		if volume.Server != nil {
			server := s.servers.rows[*volume.Server]
			server.Volumes = append(server.Volumes, volume.ID)
		}
	}
	for _, g := range s.groups.rows {
		for _, id := range g.Servers {
			clone := *g
			s.servers.rows[id].PlacementGroup = &clone
		}
	}
	s.deriveFirewalls()
	s.deriveBalancers()
}
