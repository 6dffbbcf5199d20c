package hcloud

import (
	"net/http"
	"slices"

	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"
)

func (s *Server) defineFirewalls() {
	s.firewalls = &collection[schema.Firewall]{
		name: "firewall", plural: "firewalls", rows: map[int64]*schema.Firewall{},
		head: func(v *schema.Firewall) head {
			return head{id: &v.ID, name: &v.Name, labels: &v.Labels, created: &v.Created}
		},
		busy: queues, create: s.createFirewall,
		remove: func(_ *call, v *schema.Firewall) (any, error) {
			if len(v.AppliedTo) > 0 {
				return nil, refuse("resource_in_use", "firewall with ID '%d' is still in use", v.ID)
			}
			delete(s.firewalls.rows, v.ID)
			return nil, nil
		},
		verbs: map[string]verb[schema.Firewall]{
			"set_rules": s.setRules, "apply_to_resources": s.applyFirewall,
			"remove_from_resources": s.removeFirewall,
		},
	}
	serve(s, s.firewalls)
}

func onServer(id int64) schema.FirewallResource {
	return schema.FirewallResource{Type: "server", Server: &schema.FirewallResourceServer{ID: id}}
}

func isServer(id int64) func(schema.FirewallResource) bool {
	return func(r schema.FirewallResource) bool { return r.Server != nil && r.Server.ID == id }
}

func sameResource(a schema.FirewallResource) func(schema.FirewallResource) bool {
	return func(b schema.FirewallResource) bool {
		return or(a.Server, schema.FirewallResourceServer{}) == or(b.Server,
			schema.FirewallResourceServer{}) &&
			or(a.LabelSelector, schema.FirewallResourceLabelSelector{}) ==
				or(b.LabelSelector, schema.FirewallResourceLabelSelector{})
	}
}

func (s *Server) createFirewall(c *call) (any, error) {
	in, err := decode[schema.FirewallCreateRequest](c)
	if err != nil {
		return nil, err
	}
	labels, err := s.firewalls.admit(c, in.Name, in.Labels)
	if err != nil {
		return nil, err
	}
	rules, err := rulesOf(in.Rules)
	if err != nil {
		return nil, err
	}
	if err := s.known(in.ApplyTo); err != nil {
		return nil, err
	}
	v := &schema.Firewall{Name: in.Name, Labels: labels, Rules: rules, AppliedTo: []schema.FirewallResource{}}
	s.firewalls.add(s, v)
	actions := []*schema.Action{}
	for _, r := range in.ApplyTo {
		actions = append(actions, &c.begin("apply_firewall", s.firewalls.ref(v), nil,
			func() { v.AppliedTo = append(v.AppliedTo, r) }).view)
	}
	return map[string]any{"firewall": v, "actions": actions}, nil
}

// known returns an error unless the resources exist.
func (s *Server) known(resources []schema.FirewallResource) error {
	for _, r := range resources {
		if r.Server != nil && s.servers.rows[r.Server.ID] == nil {
			return fail(http.StatusNotFound, "firewall_resource_not_found", "server %d not found",
				r.Server.ID)
		}
		if r.LabelSelector != nil {
			if _, err := parseSelector(r.LabelSelector.Selector); err != nil {
				return err
			}
		}
	}
	return nil
}

func rulesOf(in []schema.FirewallRuleRequest) ([]schema.FirewallRule, error) {
	rules := []schema.FirewallRule{}
	for _, r := range in {
		needsPort := r.Protocol == "tcp" || r.Protocol == "udp"
		switch {
		case r.Direction != "in" && r.Direction != "out":
			return nil, invalid("rules", "direction must be one of: in, out")
		case needsPort != (r.Port != nil):
			return nil, invalid("rules", "port is needed for tcp and udp, and for no other protocol")
		case r.Direction == "in" && len(r.SourceIPs) == 0 || r.Direction == "out" &&
			len(r.DestinationIPs) == 0:
			return nil, invalid("rules", "a rule needs addresses")
		}
		rules = append(rules, schema.FirewallRule{Direction: r.Direction, Protocol: r.Protocol, Port: r.Port,
			SourceIPs: append([]string{}, r.SourceIPs...), Description: r.Description,
			DestinationIPs: append([]string{}, r.DestinationIPs...)})
	}
	return rules, nil
}

func (s *Server) setRules(c *call, v *schema.Firewall) (any, error) {
	in, err := decode[schema.FirewallActionSetRulesRequest](c)
	if err != nil {
		return nil, err
	}
	rules, err := rulesOf(in.Rules)
	if err != nil {
		return nil, err
	}
	a := c.begin("set_firewall_rules", s.firewalls.ref(v), nil, func() { v.Rules = rules })
	return map[string]any{"actions": []*schema.Action{&a.view}}, nil
}

func (s *Server) applyFirewall(c *call, v *schema.Firewall) (any, error) {
	in, err := decode[schema.FirewallActionApplyToResourcesRequest](c)
	if err != nil {
		return nil, err
	}
	if err := s.known(in.ApplyTo); err != nil {
		return nil, err
	}
	actions := []*schema.Action{}
	for _, r := range in.ApplyTo {
		if slices.ContainsFunc(v.AppliedTo, sameResource(r)) {
			return nil, refuse("firewall_already_applied", "firewall is already applied")
		}
		r.AppliedToResources = nil
		actions = append(actions, &c.begin("apply_firewall", s.firewalls.ref(v), nil,
			func() { v.AppliedTo = append(v.AppliedTo, r) }).view)
	}
	return map[string]any{"actions": actions}, nil
}

func (s *Server) removeFirewall(c *call, v *schema.Firewall) (any, error) {
	in, err := decode[schema.FirewallActionRemoveFromResourcesRequest](c)
	if err != nil {
		return nil, err
	}
	actions := []*schema.Action{}
	for _, r := range in.RemoveFrom {
		if !slices.ContainsFunc(v.AppliedTo, sameResource(r)) {
			return nil, fail(http.StatusNotFound, "firewall_resource_not_found", "firewall is not applied")
		}
		actions = append(actions, &c.begin("remove_firewall", s.firewalls.ref(v), nil,
			func() { v.AppliedTo = slices.DeleteFunc(v.AppliedTo, sameResource(r)) }).view)
	}
	return map[string]any{"actions": actions}, nil
}

// deriveFirewalls writes to which servers a label selector applies each firewall, and the firewalls of
// servers.
func (s *Server) deriveFirewalls() {
	for _, server := range s.servers.rows {
		server.PublicNet.Firewalls = []schema.ServerFirewall{}
	}
	for _, f := range sorted(s.firewalls.rows) {
		for i := range f.AppliedTo {
			r := &f.AppliedTo[i]
			wanted := selector{func(map[string]string) bool { return false }}
			if r.LabelSelector != nil {
				wanted, _ = parseSelector(r.LabelSelector.Selector) //nolint:errcheck // checked by known
				r.AppliedToResources = []schema.FirewallResource{}
			}
			for _, server := range sorted(s.servers.rows) {
				byLabel := wanted.matches(server.Labels)
				if byLabel {
					r.AppliedToResources = append(r.AppliedToResources, onServer(server.ID))
				}
				if byLabel || isServer(server.ID)(*r) {
					server.PublicNet.Firewalls = append(server.PublicNet.Firewalls,
						schema.ServerFirewall{ID: f.ID, Status: "applied"})
				}
			}
		}
	}
}
