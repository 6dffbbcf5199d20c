package hcloud

import (
	"cmp"
	"crypto/md5" //nolint:gosec // the fingerprint of the API is MD5
	"encoding/base64"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"
)

func (s *Server) defineAddresses() {
	s.addresses = &collection[schema.PrimaryIP]{
		name: "primary_ip", plural: "primary_ips", rows: map[int64]*schema.PrimaryIP{},
		head: func(v *schema.PrimaryIP) head {
			return head{&v.ID, &v.Name, &v.Labels, &v.Created, &v.Protection.Delete}
		},
		filter: func(v schema.PrimaryIP, query url.Values) bool { return equals(query, "ip", v.IP) },
		create: s.createAddress,
		update: func(c *call, v *schema.PrimaryIP) error {
			in, err := decode[schema.PrimaryIPUpdateRequest](c)
			v.AutoDelete = or(in.AutoDelete, v.AutoDelete)
			return err
		},
		remove: func(_ *call, v *schema.PrimaryIP) (any, error) {
			if v.AssigneeID != nil {
				return nil, refuse("must_be_unassigned", "primary IP must be unassigned first")
			}
			delete(s.addresses.rows, v.ID)
			return nil, nil
		},
		verbs: map[string]verb[schema.PrimaryIP]{"assign": s.assign, "unassign": s.unassign},
	}
	serve(s, s.addresses)
}

func (s *Server) createAddress(c *call) (any, error) {
	in, err := decode[schema.PrimaryIPCreateRequest](c)
	if err != nil {
		return nil, err
	}
	labels, err := s.addresses.admit(c, in.Name, in.Labels)
	if err != nil {
		return nil, err
	}
	v := s.newAddress(in.Type, or(in.AutoDelete, false))
	if v == nil {
		return nil, invalid("type", "Must be one of: ipv4, ipv6.")
	}
	v.Name, v.Labels = in.Name, labels
	answer := map[string]any{"primary_ip": v, "action": nil}
	switch {
	case in.AssigneeID != nil:
		server, err := s.servers.find(*in.AssigneeID)
		if err = cmp.Or(err, assignable(server, v)); err != nil {
			return nil, err
		}
		v.Location = server.Location
		s.addresses.add(s, v)
		a := c.begin("create_primary_ip", s.addresses.ref(v), nil, func() { s.give(server, v) })
		answer["action"] = &a.view
		return answer, nil
	case in.Location == "":
		return nil, invalid("location", "Missing data for required field.")
	}
	if v.Location, err = location(in.Location); err != nil {
		return nil, err
	}
	s.addresses.add(s, v)
	return answer, nil
}

// newAddress makes a primary IP that is not kept yet; nil if there is no such family.
func (s *Server) newAddress(family string, autoDelete bool) *schema.PrimaryIP {
	v4, v6 := "", ""
	v := &schema.PrimaryIP{Type: family, AssigneeType: "server", AutoDelete: autoDelete,
		DNSPtr: []schema.PrimaryIPDNSPTR{}, Labels: map[string]string{}}
	switch family {
	case "ipv4":
		v4, _ = s.publicPair()
	case "ipv6":
		_, v6 = s.publicPair()
		v6 += "/64"
	default:
		return nil
	}
	v.IP = v4 + v6
	return v
}

// publicPair returns the next public IPv4 address, and an IPv6 network. A freed address comes back late.
func (s *Server) publicPair() (v4, v6 string) {
	used := map[string]bool{}
	for _, ip := range s.addresses.rows {
		used[ip.IP] = true
	}
	for _, b := range s.balancers.rows {
		used[b.PublicNet.IPv4.IP] = true
	}
	isUsed := func(a netip.Addr) bool { return used[a.String()] }
	next, ok := nextAddress(s.config.Addresses, s.address, isUsed)
	if !ok {
		panic("hcloud: all public addresses are used")
	}
	s.address = next
	bytes := next.As4()
	return next.String(), fmt.Sprintf("2001:db8:%02x%02x:%02x%02x::", bytes[0], bytes[1], bytes[2], bytes[3])
}

// assignable returns an error if a server cannot have a primary IP.
func assignable(v *schema.Server, ip *schema.PrimaryIP) error {
	switch {
	case v == nil:
		return nil // the error of the search says more
	case ip.AssigneeID != nil && *ip.AssigneeID != v.ID:
		return refuse("primary_ip_already_assigned", "primary IP is already assigned")
	case v.Status != "off":
		return refuse("server_not_stopped", "server must be stopped")
	case ip.Type == "ipv4" && v.PublicNet.IPv4.ID != 0:
		return refuse("server_has_ipv4", "server already has an IPv4 address")
	case ip.Type == "ipv6" && v.PublicNet.IPv6.ID != 0:
		return refuse("server_has_ipv6", "server already has an IPv6 address")
	}
	return nil
}

// give writes a primary IP and a server into each other.
func (s *Server) give(v *schema.Server, ip *schema.PrimaryIP) {
	if s.servers.rows[v.ID] == nil {
		return // it has been deleted meanwhile
	}
	ip.AssigneeID = &v.ID
	if ip.Type == "ipv4" {
		v.PublicNet.IPv4 = schema.ServerPublicNetIPv4{ID: ip.ID, IP: ip.IP}
	} else {
		v.PublicNet.IPv6 = schema.ServerPublicNetIPv6{ID: ip.ID, IP: ip.IP,
			DNSPtr: []schema.ServerPublicNetIPv6DNSPtr{}}
	}
}

// plannedAddresses are the primary IPs with which a server is created; nil, a family that it lacks. New ones
// are not kept yet.
func (s *Server) plannedAddresses(v *schema.Server, in *schema.ServerCreatePublicNet) (v4,
	v6 *schema.PrimaryIP,
	err error) {
	if in == nil {
		in = &schema.ServerCreatePublicNet{EnableIPv4: true, EnableIPv6: true}
	}
	find := func(family string, enabled bool, id int64) (*schema.PrimaryIP, error) {
		if !enabled {
			return nil, nil
		}
		if id == 0 {
			return s.newAddress(family, true), nil
		}
		ip, err := s.addresses.find(id)
		switch {
		case err != nil:
			return nil, err
		case ip.Type != family:
			return nil, fail(http.StatusPreconditionFailed, "primary_ip_version_mismatch", "primary IP is %s",
				ip.Type)
		case ip.AssigneeID != nil:
			return nil, refuse("primary_ip_assigned", "primary IP is already assigned")
		case ip.Location.Name != v.Location.Name:
			return nil, refuse("primary_ip_datacenter_mismatch", "primary IP is in %s", ip.Location.Name)
		}
		return ip, nil
	}
	if v4, err = find("ipv4", in.EnableIPv4, in.IPv4ID); err == nil {
		v6, err = find("ipv6", in.EnableIPv6, in.IPv6ID)
	}
	return v4, v6, err
}

// assignPublic gives a new server its primary IPs, and keeps those that are new.
func (s *Server) assignPublic(v *schema.Server, all ...*schema.PrimaryIP) {
	v.PublicNet.IPv6.DNSPtr = []schema.ServerPublicNetIPv6DNSPtr{}
	for _, ip := range all {
		if ip == nil {
			continue
		}
		if ip.ID == 0 {
			ip.Location = v.Location
			s.addresses.add(s, ip)
			ip.Name = fmt.Sprintf("primary_ip-%d", ip.ID)
		}
		s.give(v, ip)
	}
}

func (s *Server) assign(c *call, v *schema.PrimaryIP) (any, error) {
	in, err := decode[schema.PrimaryIPActionAssignRequest](c)
	if err != nil {
		return nil, err
	}
	server, err := s.servers.find(in.AssigneeID)
	if err = cmp.Or(err, assignable(server, v)); err != nil {
		return nil, err
	}
	return c.act("assign_primary_ip", s.addresses.ref(v), func() { s.give(server, v) }), nil
}

func (s *Server) unassign(c *call, v *schema.PrimaryIP) (any, error) {
	if v.AssigneeID == nil {
		return nil, refuse("primary_ip_not_assigned", "primary IP is not assigned")
	}
	server := s.servers.rows[*v.AssigneeID]
	if err := stopped(server); err != nil {
		return nil, err
	}
	return c.act("unassign_primary_ip", s.addresses.ref(v), func() {
		if v.AssigneeID = nil; v.Type == "ipv4" {
			server.PublicNet.IPv4 = schema.ServerPublicNetIPv4{}
		} else {
			server.PublicNet.IPv6 = schema.ServerPublicNetIPv6{}
		}
	}), nil
}

// defineOthers defines the kinds with few rules of their own.
func (s *Server) defineOthers() {
	s.groups = &collection[schema.PlacementGroup]{
		name: "placement_group", plural: "placement_groups", rows: map[int64]*schema.PlacementGroup{},
		head: func(v *schema.PlacementGroup) head {
			return head{id: &v.ID, name: &v.Name, labels: &v.Labels, created: &v.Created}
		},
		filter: func(v schema.PlacementGroup, query url.Values) bool { return equals(query, "type", v.Type) },
		create: s.createGroup,
		remove: func(_ *call, v *schema.PlacementGroup) (any, error) {
			delete(s.groups.rows, v.ID)
			return nil, nil
		},
	}
	serve(s, s.groups)
	s.keys = &collection[schema.SSHKey]{
		name: "ssh_key", plural: "ssh_keys", rows: map[int64]*schema.SSHKey{},
		head: func(v *schema.SSHKey) head {
			return head{id: &v.ID, name: &v.Name, labels: &v.Labels, created: &v.Created}
		},
		filter: func(v schema.SSHKey, query url.Values) bool {
			return equals(query, "fingerprint",
				v.Fingerprint)
		},
		create: s.createKey,
		remove: func(_ *call, v *schema.SSHKey) (any, error) {
			delete(s.keys.rows, v.ID)
			return nil, nil
		},
	}
	serve(s, s.keys)
	s.images = &collection[schema.Image]{
		name: "image", plural: "images", rows: map[int64]*schema.Image{}, head: imageHead,
		filter: func(v schema.Image, query url.Values) bool {
			return equals(query, "type", v.Type) && equals(query, "status", v.Status) &&
				equals(query, "architecture", v.Architecture)
		},
		update: func(c *call, v *schema.Image) error {
			in, err := decode[schema.ImageUpdateRequest](c)
			v.Description = or(in.Description, v.Description)
			return err
		},
		remove: func(_ *call, v *schema.Image) (any, error) {
			if v.Type == "system" {
				return nil, fail(http.StatusForbidden, "forbidden", "system images cannot be deleted")
			}
			delete(s.images.rows, v.ID)
			return nil, nil
		},
		verbs: map[string]verb[schema.Image]{},
	}
	serve(s, s.images)
	s.defineVolumes()
}

// imageHead: snapshots have no name.
func imageHead(v *schema.Image) head {
	if v.Created == nil {
		v.Created = new(time.Time)
	}
	return head{id: &v.ID, name: v.Name, labels: &v.Labels, created: v.Created,
		protected: &v.Protection.Delete}
}

func (s *Server) createGroup(c *call) (any, error) {
	in, err := decode[schema.PlacementGroupCreateRequest](c)
	if err != nil {
		return nil, err
	}
	labels, err := s.groups.admit(c, in.Name, in.Labels)
	if err != nil {
		return nil, err
	}
	if in.Type != "spread" {
		return nil, invalid("type", "Must be one of: spread.")
	}
	v := &schema.PlacementGroup{Name: in.Name, Labels: labels, Type: in.Type, Servers: []int64{}}
	s.groups.add(s, v)
	return map[string]any{"placement_group": v, "action": nil}, nil
}

func (s *Server) createKey(c *call) (any, error) {
	in, err := decode[schema.SSHKeyCreateRequest](c)
	if err != nil {
		return nil, err
	}
	labels, err := s.keys.admit(c, in.Name, in.Labels)
	if err != nil {
		return nil, err
	}
	fields := strings.Fields(in.PublicKey)
	if len(fields) < 2 {
		return nil, invalid("public_key", "invalid public key")
	}
	blob, err := base64.StdEncoding.DecodeString(fields[1])
	if err != nil {
		return nil, invalid("public_key", "invalid public key")
	}
	sum := md5.Sum(blob) //nolint:gosec // as above
	fingerprint := strings.ReplaceAll(strings.Trim(fmt.Sprintf("% x", sum), " "), " ", ":")
	same := func(k *schema.SSHKey) bool { return k.Fingerprint == fingerprint }
	if slices.ContainsFunc(sorted(s.keys.rows), same) {
		return nil, fail(http.StatusConflict, "uniqueness_error",
			"SSH key with the same fingerprint already exists")
	}
	v := &schema.SSHKey{Name: in.Name, Labels: labels, PublicKey: in.PublicKey, Fingerprint: fingerprint}
	s.keys.add(s, v)
	return map[string]any{"ssh_key": v}, nil
}

func (s *Server) defineVolumes() {
	s.volumes = &collection[schema.Volume]{
		name: "volume", plural: "volumes", rows: map[int64]*schema.Volume{},
		head: func(v *schema.Volume) head {
			return head{&v.ID, &v.Name, &v.Labels, &v.Created, &v.Protection.Delete}
		},
		filter: func(v schema.Volume, query url.Values) bool { return equals(query, "status", v.Status) },
		create: s.createVolume,
		remove: func(_ *call, v *schema.Volume) (any, error) {
			if v.Server != nil {
				return nil, refuse("service_error", "volume is still attached to server %d", *v.Server)
			}
			delete(s.volumes.rows, v.ID)
			return nil, nil
		},
		verbs: map[string]verb[schema.Volume]{"attach": s.attachVolume, "detach": s.detachVolume,
			"resize": s.resizeVolume},
	}
	serve(s, s.volumes)
}

func (s *Server) createVolume(c *call) (any, error) {
	in, err := decode[schema.VolumeCreateRequest](c)
	if err != nil {
		return nil, err
	}
	v := &schema.Volume{Name: in.Name, Size: in.Size, Status: "creating", Format: in.Format}
	if v.Labels, err = s.volumes.admit(c, in.Name, in.Labels); err != nil {
		return nil, err
	}
	if in.Size < 10 || in.Size > 10240 {
		return nil, invalid("size", "Must be between 10 and 10240.")
	}
	if in.Server != nil {
		server, err := s.servers.find(*in.Server)
		if err != nil {
			return nil, err
		}
		v.Location = server.Location
	} else if in.Location == nil {
		return nil, invalid("location", "Missing data for required field.")
	} else {
		var known bool
		if v.Location, known = byName(locations, locationKey, *in.Location); !known {
			return nil, invalid("location", "unknown location")
		}
	}
	s.volumes.add(s, v)
	v.LinuxDevice = fmt.Sprintf("/dev/disk/by-id/scsi-0HC_Volume_%d", v.ID)
	created := c.begin("create_volume", s.volumes.ref(v), nil, func() { v.Status = "available" })
	next := []*schema.Action{}
	if in.Server != nil {
		a := c.begin("attach_volume", s.volumes.ref(v), created, func() { s.mount(v, *in.Server) })
		next = append(next, &a.view)
	}
	return map[string]any{"volume": v, "action": &created.view, "next_actions": next}, nil
}

// mount attaches a volume to a server, if that still exists.
func (s *Server) mount(v *schema.Volume, server int64) {
	if s.servers.rows[server] != nil {
		v.Server = &server
	}
}

func (s *Server) attachVolume(c *call, v *schema.Volume) (any, error) {
	in, err := decode[schema.VolumeActionAttachVolumeRequest](c)
	if err != nil {
		return nil, err
	}
	server, err := s.servers.find(in.Server)
	switch {
	case err != nil:
		return nil, err
	case v.Server != nil:
		return nil, refuse("volume_already_attached", "volume is already attached")
	case server.Location.Name != v.Location.Name:
		return nil, invalid("server", "server is in another location")
	}
	return c.act("attach_volume", s.volumes.ref(v), func() { s.mount(v, in.Server) }), nil
}

func (s *Server) detachVolume(c *call, v *schema.Volume) (any, error) {
	if v.Server == nil {
		return nil, refuse("service_error", "volume is not attached")
	}
	return c.act("detach_volume", s.volumes.ref(v), func() { v.Server = nil }), nil
}

func (s *Server) resizeVolume(c *call, v *schema.Volume) (any, error) {
	in, err := decode[schema.VolumeActionResizeVolumeRequest](c)
	if err != nil {
		return nil, err
	}
	if in.Size <= v.Size {
		return nil, invalid("size", "Must be greater than the current size.")
	}
	return c.act("resize_volume", s.volumes.ref(v), func() { v.Size = in.Size }), nil
}
