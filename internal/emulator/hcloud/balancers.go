package hcloud

import (
	"net"
	"net/http"
	"slices"
	"strconv"

	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"
)

func (s *Server) defineBalancers() {
	s.balancers = &collection[schema.LoadBalancer]{
		name: "load_balancer", plural: "load_balancers", rows: map[int64]*schema.LoadBalancer{},
		head: func(v *schema.LoadBalancer) head {
			return head{&v.ID, &v.Name, &v.Labels, &v.Created, &v.Protection.Delete}
		},
		// The provider adds services side by side, and repeats no call that is refused.
		busy: queues, create: s.createBalancer,
		remove: func(_ *call, v *schema.LoadBalancer) (any, error) {
			delete(s.balancers.rows, v.ID)
			return nil, nil
		},
		verbs: map[string]verb[schema.LoadBalancer]{
			"add_service": s.addService, "update_service": s.updateService, "delete_service": s.deleteService,
			"add_target": s.addTarget, "remove_target": s.removeTarget,
			"attach_to_network": s.attachBalancer, "detach_from_network": s.detachBalancer,
			"enable_public_interface": s.public(true), "disable_public_interface": s.public(false),
			"change_algorithm": s.changeAlgorithm, "change_type": s.changeBalancerType,
		},
	}
	serve(s, s.balancers)
}

func (s *Server) createBalancer(c *call) (any, error) {
	in, err := decode[schema.LoadBalancerCreateRequest](c)
	if err != nil {
		return nil, err
	}
	v := &schema.LoadBalancer{Name: in.Name, PrivateNet: []schema.LoadBalancerPrivateNet{},
		Services: []schema.LoadBalancerService{}, Targets: []schema.LoadBalancerTarget{},
		Algorithm: schema.LoadBalancerAlgorithm{Type: "round_robin"}}
	if v.Labels, err = s.balancers.admit(c, in.Name, in.Labels); err != nil {
		return nil, err
	}
	var known bool
	if v.LoadBalancerType, known = byName(balancerPrices(), balancerTypeKey, in.LoadBalancerType); !known {
		return nil, invalid("load_balancer_type", "load balancer type not found")
	}
	if in.Algorithm != nil {
		v.Algorithm.Type = in.Algorithm.Type
	}
	name := "fsn1"
	switch {
	case (in.Location == nil) == (in.NetworkZone == nil):
		return nil, invalid("location", "exactly one of location and network_zone is needed")
	case in.Location != nil:
		name = *in.Location
	default:
		inZone := func(l schema.Location) bool { return l.NetworkZone == *in.NetworkZone }
		at := slices.IndexFunc(locations, inZone)
		if at < 0 {
			return nil, invalid("network_zone", "unknown network zone")
		}
		name = locations[at].Name
	}
	if v.Location, err = location(name); err != nil {
		return nil, err
	}
	var private []schema.LoadBalancerPrivateNet
	if in.Network != nil {
		p, err := s.balancerCard(v, *in.Network, nil, nil)
		if err != nil {
			return nil, err
		}
		private = append(private, p)
	}
	v4, v6 := s.publicPair()
	v.PublicNet = schema.LoadBalancerPublicNet{Enabled: in.PublicInterface == nil || *in.PublicInterface,
		IPv4: schema.LoadBalancerPublicNetIPv4{IP: v4}, IPv6: schema.LoadBalancerPublicNetIPv6{IP: v6}}
	s.balancers.add(s, v)
	a := c.begin("create_load_balancer", s.balancers.ref(v), nil,
		func() {
			for _, p := range private {
				s.plugBalancer(v, p)
			}
		})
	return map[string]any{"load_balancer": v, "action": &a.view}, nil
}

func (s *Server) balancerCard(v *schema.LoadBalancer, network int64, wanted, block *string,
) (schema.LoadBalancerPrivateNet, error) {
	n, err := s.networks.find(network)
	if err != nil {
		return schema.LoadBalancerPrivateNet{}, err
	}
	address, err := s.join(n, v.Location.NetworkZone, wanted, block)
	return schema.LoadBalancerPrivateNet{Network: network, IP: address}, err
}

func (s *Server) plugBalancer(v *schema.LoadBalancer, p schema.LoadBalancerPrivateNet) {
	if s.networks.rows[p.Network] != nil {
		v.PrivateNet = append(v.PrivateNet, p)
	}
}

func (s *Server) attachBalancer(c *call, v *schema.LoadBalancer) (any, error) {
	in, err := decode[schema.LoadBalancerActionAttachToNetworkRequest](c)
	if err != nil {
		return nil, err
	}
	if len(v.PrivateNet) > 0 {
		return nil, refuse("load_balancer_already_attached", "load balancer is already attached to a network")
	}
	p, err := s.balancerCard(v, in.Network, in.IP, in.IPRange)
	if err != nil {
		return nil, err
	}
	return c.act("attach_to_network", s.balancers.ref(v), func() { s.plugBalancer(v, p) }), nil
}

func (s *Server) detachBalancer(c *call, v *schema.LoadBalancer) (any, error) {
	in, err := decode[schema.LoadBalancerActionDetachFromNetworkRequest](c)
	if err != nil {
		return nil, err
	}
	joined := func(p schema.LoadBalancerPrivateNet) bool { return p.Network == in.Network }
	if !slices.ContainsFunc(v.PrivateNet, joined) {
		return nil, fail(http.StatusNotFound, "not_found", "load balancer is not attached to the network")
	}
	if slices.ContainsFunc(v.Targets, func(t schema.LoadBalancerTarget) bool { return t.UsePrivateIP }) {
		return nil, refuse("targets_with_use_private_ip", "load balancer has targets with private IPs")
	}
	return c.act("detach_from_network", s.balancers.ref(v),
		func() { v.PrivateNet = slices.DeleteFunc(v.PrivateNet, joined) }), nil
}

func (s *Server) public(on bool) verb[schema.LoadBalancer] {
	command := map[bool]string{true: "enable_public_interface", false: "disable_public_interface"}[on]
	return func(c *call, v *schema.LoadBalancer) (any, error) {
		return c.act(command, s.balancers.ref(v), func() { v.PublicNet.Enabled = on }), nil
	}
}

func (s *Server) changeAlgorithm(c *call, v *schema.LoadBalancer) (any, error) {
	in, err := decode[schema.LoadBalancerActionChangeAlgorithmRequest](c)
	if err != nil {
		return nil, err
	}
	return c.act("change_algorithm", s.balancers.ref(v), func() { v.Algorithm.Type = in.Type }), nil
}

func (s *Server) changeBalancerType(c *call, v *schema.LoadBalancer) (any, error) {
	in, err := decode[schema.LoadBalancerActionChangeTypeRequest](c)
	if err != nil {
		return nil, err
	}
	t, known := byName(balancerPrices(), balancerTypeKey, in.LoadBalancerType)
	if !known || len(v.Services) > t.MaxServices || len(v.Targets) > t.MaxTargets {
		return nil, refuse("invalid_load_balancer_type", "load balancer type does not fit")
	}
	return c.act("change_load_balancer_type", s.balancers.ref(v), func() { v.LoadBalancerType = t }), nil
}

func listensAt(port int) func(schema.LoadBalancerService) bool {
	return func(v schema.LoadBalancerService) bool { return v.ListenPort == port }
}

// or returns what a pointer points to, or another value.
func or[T any](p *T, otherwise T) T {
	if p == nil {
		return otherwise
	}
	return *p
}

func (s *Server) addService(c *call, v *schema.LoadBalancer) (any, error) {
	in, err := decode[schema.LoadBalancerActionAddServiceRequest](c)
	if err != nil {
		return nil, err
	}
	if in.Protocol != "tcp" {
		return nil, refuse("unsupported_error", "this emulator has services of protocol tcp alone")
	}
	if in.ListenPort == nil || in.DestinationPort == nil {
		return nil, invalid("listen_port", "Missing data for required field.")
	}
	if slices.ContainsFunc(v.Services, listensAt(*in.ListenPort)) {
		return nil, fail(http.StatusPreconditionFailed, "source_port_already_used", "port %d is used",
			*in.ListenPort)
	}
	if len(v.Services) >= v.LoadBalancerType.MaxServices {
		return nil, fail(http.StatusForbidden, "resource_limit_exceeded", "too many services")
	}
	service := schema.LoadBalancerService{Protocol: in.Protocol, ListenPort: *in.ListenPort,
		DestinationPort: *in.DestinationPort, Proxyprotocol: or(in.Proxyprotocol, false),
		HealthCheck: &schema.LoadBalancerServiceHealthCheck{Protocol: "tcp", Port: *in.DestinationPort,
			Interval: 15, Timeout: 10, Retries: 3}}
	if h := in.HealthCheck; h != nil {
		service.HealthCheck = &schema.LoadBalancerServiceHealthCheck{Protocol: h.Protocol,
			Port: or(h.Port, *in.DestinationPort), Interval: or(h.Interval, 15), Timeout: or(h.Timeout, 10),
			Retries: or(h.Retries, 3)}
		if h.HTTP != nil {
			service.HealthCheck.HTTP = &schema.LoadBalancerServiceHealthCheckHTTP{
				Domain: or(h.HTTP.Domain, ""), Path: or(h.HTTP.Path, "/"), Response: or(h.HTTP.Response, ""),
				StatusCodes: or(h.HTTP.StatusCodes, nil), TLS: or(h.HTTP.TLS, false)}
		}
	}
	return c.act("add_service", s.balancers.ref(v), func() { v.Services = append(v.Services, service) }), nil
}

func (s *Server) updateService(c *call, v *schema.LoadBalancer) (any, error) {
	in, err := decode[schema.LoadBalancerActionUpdateServiceRequest](c)
	if err != nil {
		return nil, err
	}
	at := slices.IndexFunc(v.Services, listensAt(in.ListenPort))
	if at < 0 {
		return nil, fail(http.StatusNotFound, "not_found", "service not found")
	}
	return c.act("update_service", s.balancers.ref(v), func() {
		service := &v.Services[at]
		service.DestinationPort = or(in.DestinationPort, service.DestinationPort)
		service.Proxyprotocol = or(in.Proxyprotocol, service.Proxyprotocol)
		if h := in.HealthCheck; h != nil {
			check := *service.HealthCheck
			check.Protocol, check.Port = or(h.Protocol, check.Protocol), or(h.Port, check.Port)
			check.Interval, check.Timeout = or(h.Interval, check.Interval), or(h.Timeout, check.Timeout)
			check.Retries = or(h.Retries, check.Retries)
			service.HealthCheck = &check
		}
	}), nil
}

func (s *Server) deleteService(c *call, v *schema.LoadBalancer) (any, error) {
	in, err := decode[schema.LoadBalancerDeleteServiceRequest](c)
	if err != nil {
		return nil, err
	}
	if !slices.ContainsFunc(v.Services, listensAt(in.ListenPort)) {
		return nil, fail(http.StatusNotFound, "not_found", "service not found")
	}
	return c.act("delete_service", s.balancers.ref(v),
		func() { v.Services = slices.DeleteFunc(v.Services, listensAt(in.ListenPort)) }), nil
}

// targetOf reads the target of a request, which adds or removes it.
func targetOf(c *call) (schema.LoadBalancerTarget, error) {
	in, err := decode[schema.LoadBalancerActionAddTargetRequest](c)
	t := schema.LoadBalancerTarget{Type: in.Type, UsePrivateIP: or(in.UsePrivateIP, false),
		HealthStatus: []schema.LoadBalancerTargetHealthStatus{}}
	switch {
	case err != nil:
		return t, err
	case in.Type == "server" && in.Server != nil:
		t.Server = &schema.LoadBalancerTargetServer{ID: in.Server.ID}
	case in.Type == "label_selector" && in.LabelSelector != nil:
		t.LabelSelector = &schema.LoadBalancerTargetLabelSelector{Selector: in.LabelSelector.Selector}
		_, err = parseSelector(in.LabelSelector.Selector)
	case in.Type == "ip" && in.IP != nil:
		t.IP = &schema.LoadBalancerTargetIP{IP: in.IP.IP}
	default:
		err = invalid("type", "Must be one of: server, label_selector, ip.")
	}
	return t, err
}

func sameTarget(a schema.LoadBalancerTarget) func(schema.LoadBalancerTarget) bool {
	key := func(t schema.LoadBalancerTarget) [3]any {
		return [3]any{or(t.Server, schema.LoadBalancerTargetServer{}), or(t.IP,
			schema.LoadBalancerTargetIP{}),
			or(t.LabelSelector, schema.LoadBalancerTargetLabelSelector{})}
	}
	return func(b schema.LoadBalancerTarget) bool { return key(a) == key(b) }
}

func (s *Server) addTarget(c *call, v *schema.LoadBalancer) (any, error) {
	t, err := targetOf(c)
	if err != nil {
		return nil, err
	}
	switch {
	case slices.ContainsFunc(v.Targets, sameTarget(t)):
		return nil, refuse("target_already_defined", "target is already defined")
	case len(v.Targets) >= v.LoadBalancerType.MaxTargets:
		return nil, fail(http.StatusForbidden, "resource_limit_exceeded", "too many targets")
	case t.UsePrivateIP && len(v.PrivateNet) == 0:
		return nil, refuse("load_balancer_not_attached_to_network",
			"load balancer is not attached to a network")
	}
	if t.Server != nil {
		server, err := s.servers.find(t.Server.ID)
		if err != nil {
			return nil, err
		}
		if t.UsePrivateIP && !slices.ContainsFunc(server.PrivateNet, inNetwork(v.PrivateNet[0].Network)) {
			return nil, refuse("server_not_attached_to_network", "server is not attached to the network")
		}
	}
	return c.act("add_target", s.balancers.ref(v), func() {
		if t.Server == nil || s.servers.rows[t.Server.ID] != nil {
			v.Targets = append(v.Targets, t)
		}
	}), nil
}

func (s *Server) removeTarget(c *call, v *schema.LoadBalancer) (any, error) {
	t, err := targetOf(c)
	if err != nil {
		return nil, err
	}
	if !slices.ContainsFunc(v.Targets, sameTarget(t)) {
		return nil, fail(http.StatusNotFound, "load_balancer_target_not_found",
			"load balancer target not found")
	}
	return c.act("remove_target", s.balancers.ref(v),
		func() { v.Targets = slices.DeleteFunc(v.Targets, sameTarget(t)) }), nil
}

// deriveBalancers writes the health of each target: that of the server behind it. A change shows at once, not
// after the interval and the retries of a health check.
func (s *Server) deriveBalancers() {
	for _, b := range sorted(s.balancers.rows) {
		for _, p := range b.PrivateNet {
			v := s.networks.rows[p.Network]
			v.LoadBalancers = append(v.LoadBalancers, b.ID)
		}
		for i := range b.Targets {
			t := &b.Targets[i]
			if t.LabelSelector != nil {
				t.Targets = nil
				wanted, _ := parseSelector(t.LabelSelector.Selector) //nolint:errcheck // checked by targetOf
				for _, server := range sorted(s.servers.rows) {
					if wanted.matches(server.Labels) {
						t.Targets = append(t.Targets, schema.LoadBalancerTarget{Type: "server",
							Server:       &schema.LoadBalancerTargetServer{ID: server.ID},
							UsePrivateIP: t.UsePrivateIP})
					}
				}
				for j := range t.Targets {
					s.health(b, &t.Targets[j])
				}
			}
			s.health(b, t)
		}
	}
}

func (s *Server) health(b *schema.LoadBalancer, t *schema.LoadBalancerTarget) {
	t.HealthStatus = []schema.LoadBalancerTargetHealthStatus{}
	if t.Server == nil {
		return
	}
	server := s.servers.rows[t.Server.ID]
	server.LoadBalancers = append(server.LoadBalancers, b.ID)
	slices.Sort(server.LoadBalancers)
	server.LoadBalancers = slices.Compact(server.LoadBalancers)
	for _, service := range b.Services {
		listens := server.Status == "running" && (s.config.Listens == nil ||
			s.config.Listens(server.ID, service.HealthCheck.Port))
		t.HealthStatus = append(t.HealthStatus, schema.LoadBalancerTargetHealthStatus{
			ListenPort: service.ListenPort,
			Status:     map[bool]string{true: healthy, false: "unhealthy"}[listens]})
	}
}

const healthy = "healthy"

// Frontends are the addresses ("198.51.100.1:443") at which the load balancers with a label listen, and
// whether a target there is healthy. Without one, a load balancer takes a connection and ends it at once.
func (s *Server) Frontends(label string) map[string]bool {
	defer s.locked()()
	s.derive()
	all := map[string]bool{}
	for _, b := range s.balancers.rows {
		if _, is := b.Labels[label]; !is {
			continue
		}
		var addresses []string
		if b.PublicNet.Enabled {
			addresses = append(addresses, b.PublicNet.IPv4.IP, b.PublicNet.IPv6.IP)
		}
		for _, p := range b.PrivateNet {
			addresses = append(addresses, p.IP)
		}
		for _, service := range b.Services {
			for _, address := range addresses {
				all[net.JoinHostPort(address, strconv.Itoa(service.ListenPort))] = reaches(b.Targets,
					service.ListenPort)
			}
		}
	}
	return all
}

// reaches reports whether a target is healthy for the service of a port.
func reaches(targets []schema.LoadBalancerTarget, port int) bool {
	is := schema.LoadBalancerTargetHealthStatus{ListenPort: port, Status: healthy}
	return slices.ContainsFunc(targets, func(t schema.LoadBalancerTarget) bool {
		return slices.Contains(t.HealthStatus, is) || reaches(t.Targets, port)
	})
}
