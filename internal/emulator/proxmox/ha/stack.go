// Package ha emulates the stack that keeps guests running (pve-ha-manager): resources with the state that
// they shall have, rules about the nodes that they may be on, and the recovery of the guests of a node that
// is gone.
package ha

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/ephemeral-castle/castle/internal/emulator/proxmox/guest"
	"github.com/ephemeral-castle/castle/internal/emulator/proxmox/option"
)

// Stack is the HA stack of a datacenter. The field HA of a guest tells whether it manages that.
type Stack struct {
	config    Config
	guests    *guest.Guests
	resources map[string]map[string]string // their options by sid, vm:421
	rules     map[string]map[string]string // their options by name
	order     []string                     // of the rules
}

// Config is what the stack needs of a datacenter.
type Config struct {
	Nodes   []string
	Offline func(node string) bool
	Rules   bool // as since release 9.0, which has no groups any more
}

// New returns a stack that manages no guest yet.
func New(c Config, guests *guest.Guests) *Stack {
	return &Stack{config: c, guests: guests, resources: map[string]map[string]string{},
		rules: map[string]map[string]string{}}
}

func sidOf(id int) string { return "vm:" + strconv.Itoa(id) }

// managed is the guest of a resource, if it exists.
func (s *Stack) managed(sid string) *guest.Guest {
	id, _ := strconv.Atoi(strings.TrimPrefix(sid, "vm:")) //nolint:errcheck // 0 is no guest's id
	return s.guests.Get(id)
}

// resource returns the options of a guest's resource; nil without one.
func (s *Stack) resource(sid string) map[string]string {
	if g := s.managed(sid); s.resources[sid] == nil && g != nil && g.HA {
		s.resources[sid] = map[string]string{"type": "vm", "state": "started"}
	}
	return s.resources[sid]
}

// unmanage removes a resource; purge: from the rules, too, and a rule that has lost its last one.
func (s *Stack) unmanage(sid string, purge bool) {
	if delete(s.resources, sid); s.managed(sid) != nil {
		s.managed(sid).HA = false
	}
	for _, name := range slices.Sorted(maps.Keys(s.rules)) {
		if !purge {
			continue
		}
		rest := slices.DeleteFunc(option.SplitList(s.rules[name]["resources"]), func(one string) bool {
			return one == sid
		})
		if s.rules[name]["resources"] = strings.Join(rest, ","); len(rest) == 0 {
			delete(s.rules, name)
		}
	}
}

// follow brings a guest into the state that its resource wants, as the managers of the nodes do in seconds.
func (s *Stack) follow(g *guest.Guest) {
	if g == nil {
		return
	}
	state := s.resources[sidOf(g.ID)]["state"]
	g.HA = state != "ignored"
	switch {
	case (state == "started" || state == "enabled") && !g.Running:
		s.guests.Power(g, true)
	case (state == "stopped" || state == "disabled") && g.Running:
		s.guests.Power(g, false)
	}
}

// Recover starts the guests of a node that is gone on others. The rest of the cluster has fenced it. A guest
// whose disks only that node has does not start.
func (s *Stack) Recover(node string) {
	for _, g := range s.guests.All() {
		if g.Node != node || !g.HA {
			continue
		}
		to := s.refuge(g)
		if to == "" {
			continue
		}
		if g.Node, g.Running = to, false; s.guests.HasDisks(g) {
			s.follow(g)
		}
	}
}

// refuge is a node that is online and has no guest from which a rule separates one.
func (s *Stack) refuge(g *guest.Guest) string {
	taken := func(node string) bool {
		for _, rule := range s.rules {
			members := option.SplitList(rule["resources"])
			if rule["affinity"] != "negative" || !slices.Contains(members, sidOf(g.ID)) {
				continue
			}
			for _, other := range s.guests.All() {
				if other != g && other.Node == node && slices.Contains(members, sidOf(other.ID)) {
					return true
				}
			}
		}
		return false
	}
	for _, node := range s.config.Nodes {
		if !s.config.Offline(node) && !taken(node) {
			return node
		}
	}
	return ""
}

// AddRule adds a rule without a call.
func (s *Stack) AddRule(name string, options map[string]string) {
	s.rules[name], s.order = options, append(s.order, name)
}

// Options returns the options of the resources, vm:421, and rules that exist.
func (s *Stack) Options() map[string]map[string]string {
	all := map[string]map[string]string{}
	for _, some := range []map[string]map[string]string{s.resources, s.rules} {
		for name, options := range some {
			all[name] = maps.Clone(options)
		}
	}
	return all
}

// State is the state that a managed guest's resource wants.
func (s *Stack) State(g *guest.Guest) string { return s.resource(sidOf(g.ID))["state"] }

// Want notes a state that a caller wants of a managed guest: started or stopped.
func (s *Stack) Want(g *guest.Guest, state string) { s.resource(sidOf(g.ID))["state"] = state }

// Release removes a guest that is deleted from the stack and its rules.
func (s *Stack) Release(g *guest.Guest) { s.unmanage(sidOf(g.ID), true) }

// Failed brings a managed guest that has stopped by itself into the state that its resource wants.
func (s *Stack) Failed(g *guest.Guest) {
	s.resource(sidOf(g.ID))
	s.follow(g)
}
