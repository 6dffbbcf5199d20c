package hcloud

import (
	"cmp"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"

	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"
)

const (
	mostUserData = 32 << 10
	mostInGroup  = 10
)

var hostname = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9.-]{0,61}[A-Za-z0-9])?$`)

func (s *Server) defineServers() {
	s.servers = &collection[schema.Server]{
		name: "server", plural: "servers", rows: map[int64]*schema.Server{},
		head: func(v *schema.Server) head {
			return head{&v.ID, &v.Name, &v.Labels, &v.Created, &v.Protection.Delete}
		},
		filter: func(v schema.Server, query url.Values) bool { return equals(query, "status", v.Status) },
		create: s.createServer, remove: s.deleteServer,
		verbs: map[string]verb[schema.Server]{
			"poweron": s.power("start_server", "running"), "poweroff": s.power("stop_server", "off"),
			"shutdown": s.power("shutdown_server", "off"), "reset": s.power("reset_server", "running"),
			"reboot":      s.power("reboot_server", "running"),
			"rebuild":     s.rebuild,
			"change_type": s.changeType, "create_image": s.createImage,
			"enable_rescue": s.rescue(true), "disable_rescue": s.rescue(false),
			"attach_to_network": s.attach, "detach_from_network": s.detach,
			"change_alias_ips":       s.changeAliases,
			"add_to_placement_group": s.joinGroup, "remove_from_placement_group": s.leaveGroup,
		},
	}
	serve(s, s.servers)
}

// createServer checks a request as a whole before it changes anything.
func (s *Server) createServer(c *call) (any, error) {
	in, err := decode[schema.ServerCreateRequest](c)
	if err != nil {
		return nil, err
	}
	v := &schema.Server{Name: in.Name, Status: "initializing", Volumes: []int64{}, LoadBalancers: []int64{},
		PrivateNet: []schema.ServerPrivateNet{}, PublicNet: schema.ServerPublicNet{
			FloatingIPs: []int64{}, Firewalls: []schema.ServerFirewall{}}}
	if v.Labels, err = s.servers.admit(c, in.Name, in.Labels); err != nil {
		return nil, err
	}
	if err := s.place(v, in); err != nil {
		return nil, err
	}
	networks, err := s.plannedNets(v, in.Networks)
	if err != nil {
		return nil, err
	}
	v4, v6, err := s.plannedAddresses(v, in.PublicNet)
	if err != nil {
		return nil, err
	}
	s.servers.add(s, v)
	s.userData[v.ID] = in.UserData
	s.assignPublic(v, v4, v6)
	for _, in := range in.Firewalls {
		f := s.firewalls.rows[in.Firewall]
		f.AppliedTo = append(f.AppliedTo, onServer(v.ID))
	}
	if in.PlacementGroup != 0 {
		group := s.groups.rows[in.PlacementGroup]
		group.Servers = append(group.Servers, v.ID)
	}
	return s.started(c, v, networks, in.StartAfterCreate == nil || *in.StartAfterCreate), nil
}

// started begins the actions of a new server, one after the other.
func (s *Server) started(c *call, v *schema.Server, networks []schema.ServerPrivateNet, start bool) any {
	created := c.begin("create_server", s.servers.ref(v), nil, func() { v.Status = "off" })
	next := []*schema.Action{}
	last := created
	if start {
		var a *action
		a = c.begin("start_server", s.servers.ref(v), last, func() {
			v.Status = "running"
			a.tell(s, s.config.OnStart, v)
		})
		next, last = append(next, &a.view), a
	}
	for _, n := range networks {
		var a *action
		a = c.begin("attach_to_network", s.servers.ref(v), last, func() { s.plug(a, v, n) })
		next, last = append(next, &a.view), a
	}
	return map[string]any{"server": v, "action": &created.view, "next_actions": next, "root_password": nil}
}

// place finds where a new server runs: its type, location, image and group, and checks its user data.
func (s *Server) place(v *schema.Server, in schema.ServerCreateRequest) error {
	if !hostname.MatchString(in.Name) {
		return invalid("name", "Name is not a valid hostname.")
	}
	if len(in.UserData) > mostUserData {
		return invalid("user_data", fmt.Sprintf("Length must be at most %d.", mostUserData))
	}
	var known bool
	if v.ServerType, known = byName(s.types(), typeKey, in.ServerType); !known {
		return invalid("server_type", "server type not found")
	}
	var err error
	if v.Location, err = location(cmp.Or(in.Location, "fsn1")); err != nil {
		return err
	}
	if slices.Contains(s.config.Unavailable, v.ServerType.Name+"@"+v.Location.Name) {
		return fail(http.StatusPreconditionFailed, "resource_unavailable",
			"server type %s is not available in %s", v.ServerType.Name, v.Location.Name)
	}
	image, err := s.image(in.Image, v.ServerType.Architecture)
	if err != nil {
		return err
	}
	v.Image, v.PrimaryDiskSize = image, v.ServerType.Disk
	for _, f := range in.Firewalls {
		if _, err := s.firewalls.find(f.Firewall); err != nil {
			return err
		}
	}
	if in.PlacementGroup == 0 {
		return nil
	}
	group, err := s.groups.find(in.PlacementGroup)
	if err != nil {
		return err
	}
	return s.placement(group)
}

// placement returns an error if a group has no host for one more server.
func (s *Server) placement(group *schema.PlacementGroup) error {
	if len(group.Servers) >= mostInGroup {
		return refuse("placement_error", "error during placement: placement group %s has %d servers",
			group.Name,
			len(group.Servers))
	}
	return nil
}

// image returns a copy of an image for a server of an architecture.
func (s *Server) image(want schema.IDOrName, architecture string) (*schema.Image, error) {
	for _, i := range sorted(s.images.rows) {
		if i.ID != want.ID && (want.Name == "" || i.Name == nil || *i.Name != want.Name) {
			continue
		}
		switch {
		case want.ID == 0 && i.Architecture != architecture:
			continue // one name stands for the images of all architectures
		case i.Architecture != architecture:
			return nil, invalid("image", "image architecture does not match the server type")
		case i.Status != "available":
			return nil, refuse("resource_unavailable", "image is not available")
		}
		clone := *i
		return &clone, nil
	}
	return nil, invalid("image", "image not found")
}

// power changes whether a server runs. A reset and a reboot start it again.
func (s *Server) power(command, status string) verb[schema.Server] {
	return func(c *call, v *schema.Server) (any, error) {
		var a *action
		a = c.begin(command, s.servers.ref(v), nil, func() {
			was := v.Status
			if command == "shutdown_server" && s.deaf[v.ID] {
				return // the action is to ask the guest, and has succeeded
			}
			v.Status = status
			if was == "running" && (status == "off" || command != "start_server") {
				a.tell(s, s.config.OnStop, v)
			}
			if status == "running" && (was != "running" || command != "start_server") {
				a.tell(s, s.config.OnStart, v)
			}
		})
		if s.config.OnShutdown != nil && v.Status == "running" && asks[command] {
			m := Machine{*v, s.userData[v.ID]}
			a.before = func() { s.config.OnShutdown(m) }
		}
		return map[string]any{"action": &a.view}, nil
	}
}

// asks are the commands that ask the guest to shut down.
var asks = map[string]bool{"shutdown_server": true, "reboot_server": true}

// deleteServer leaves what is not the server's own: volumes, networks, and addresses that are not deleted
// with it.
func (s *Server) deleteServer(c *call, v *schema.Server) (any, error) {
	was := v.Status
	v.Status = "deleting"
	var a *action
	a = c.begin("delete_server", s.servers.ref(v), nil, func() {
		delete(s.servers.rows, v.ID)
		if was == "running" {
			a.tell(s, s.config.OnStop, v)
		}
		a.tell(s, s.config.OnDelete, v)
		for _, ip := range sorted(s.addresses.rows) {
			if ip.AssigneeID != nil && *ip.AssigneeID == v.ID {
				if ip.AssigneeID = nil; ip.AutoDelete {
					delete(s.addresses.rows, ip.ID)
				}
			}
		}
		for _, volume := range s.volumes.rows {
			if volume.Server != nil && *volume.Server == v.ID {
				volume.Server = nil
			}
		}
		s.dropServer(v.ID)
	})
	return map[string]any{"action": &a.view}, nil
}

// dropServer removes a server from the lists of other resources.
func (s *Server) dropServer(id int64) {
	for _, f := range s.firewalls.rows {
		f.AppliedTo = slices.DeleteFunc(f.AppliedTo, isServer(id))
	}
	for _, g := range s.groups.rows {
		g.Servers = slices.DeleteFunc(g.Servers, func(member int64) bool { return member == id })
	}
	for _, b := range s.balancers.rows {
		b.Targets = slices.DeleteFunc(b.Targets, func(t schema.LoadBalancerTarget) bool {
			return t.Server != nil && t.Server.ID == id
		})
	}
}

func stopped(v *schema.Server) error {
	if v.Status != "off" {
		return refuse("server_not_stopped", "server must be stopped")
	}
	return nil
}

func (s *Server) changeType(c *call, v *schema.Server) (any, error) {
	in, err := decode[schema.ServerActionChangeTypeRequest](c)
	if err = cmp.Or(err, stopped(v)); err != nil {
		return nil, err
	}
	t, known := byName(s.types(), typeKey, in.ServerType)
	switch {
	case !known:
		return nil, invalid("server_type", "server type not found")
	case t.Architecture != v.ServerType.Architecture || t.Disk < v.PrimaryDiskSize:
		return nil, refuse("invalid_server_type", "server type %s does not fit", t.Name)
	}
	return c.act("change_server_type", s.servers.ref(v), func() {
		if v.ServerType = t; in.UpgradeDisk {
			v.PrimaryDiskSize = t.Disk
		}
	}), nil
}

func (s *Server) rebuild(c *call, v *schema.Server) (any, error) {
	in, err := decode[schema.ServerActionRebuildRequest](c)
	if err != nil {
		return nil, err
	}
	image, err := s.image(in.Image, v.ServerType.Architecture)
	if err != nil {
		return nil, err
	}
	if v.Protection.Rebuild {
		return nil, fail(http.StatusLocked, "protected", "server rebuild is protected")
	}
	var a *action
	a = c.begin("rebuild_server", s.servers.ref(v), nil, func() {
		if in.UserData != nil {
			s.userData[v.ID] = *in.UserData
		}
		v.Image, v.Status = image, "running"
		a.tell(s, s.config.OnStop, v)
		a.tell(s, s.config.OnStart, v)
	})
	return map[string]any{"action": &a.view, "root_password": nil}, nil
}

func (s *Server) rescue(on bool) verb[schema.Server] {
	command := map[bool]string{true: "enable_rescue", false: "disable_rescue"}[on]
	return func(c *call, v *schema.Server) (any, error) {
		a := c.begin(command, s.servers.ref(v), nil, func() { v.RescueEnabled = on })
		return map[string]any{"action": &a.view, "root_password": "rescue"}, nil
	}
}

// createImage makes a snapshot, which is available when the action has ended.
func (s *Server) createImage(c *call, v *schema.Server) (any, error) {
	in, err := decode[schema.ServerActionCreateImageRequest](c)
	if err = cmp.Or(err, checkLabels(in.Labels)); err != nil {
		return nil, err
	}
	i := &schema.Image{Status: "creating", Type: "snapshot", DiskSize: float32(v.PrimaryDiskSize),
		OSFlavor: "unknown", Architecture: v.ServerType.Architecture,
		CreatedFrom: &schema.ImageCreatedFrom{ID: v.ID, Name: v.Name}}
	if in.Type != nil {
		i.Type = *in.Type
	}
	if in.Description != nil {
		i.Description = *in.Description
	}
	if in.Labels != nil {
		i.Labels = *in.Labels
	}
	s.images.add(s, i)
	a := c.begin("create_image", s.servers.ref(v), nil, func() {
		size := float32(1)
		i.Status, i.ImageSize = "available", &size
	})
	return map[string]any{"action": &a.view, "image": i}, nil
}

func (s *Server) joinGroup(c *call, v *schema.Server) (any, error) {
	in, err := decode[struct {
		ID int64 `json:"placement_group"`
	}](c)
	if err = cmp.Or(err, stopped(v)); err != nil {
		return nil, err
	}
	group, err := s.groups.find(in.ID)
	if err != nil {
		return nil, err
	}
	if err := s.placement(group); err != nil {
		return nil, err
	}
	return c.act("add_to_placement_group", s.servers.ref(v),
		func() { group.Servers = append(group.Servers, v.ID) }), nil
}

func (s *Server) leaveGroup(c *call, v *schema.Server) (any, error) {
	return c.act("remove_from_placement_group", s.servers.ref(v), func() {
		for _, g := range s.groups.rows {
			g.Servers = slices.DeleteFunc(g.Servers, func(member int64) bool { return member == v.ID })
		}
	}), nil
}
