package proxmox

import (
	"crypto/sha1"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// highAvailability is the configuration of the HA stack (pve-ha-manager's PVE/API2/HA/Resources.pm and
// Rules.pm). guest.HA tells which guests it manages.
type highAvailability struct {
	resources, rules map[string]map[string]string // their options by sid, vm:421, and by name
	order            []string                     // of the rules
}

const haOptions = "state comment failback group max_restart max_relocate type affinity resources nodes strict"

// options reads the options of a resource or a rule from a call.
func (c *call) options(into map[string]string) {
	for _, key := range strings.Fields(haOptions) {
		if value := c.get(key); value != "" {
			into[key] = value
		}
	}
	if c.flag("disable") {
		into["disable"] = "1"
	} else if c.request.Params.Has("disable") {
		delete(into, "disable")
	}
	for _, key := range splitList(c.get("delete")) {
		delete(into, key)
	}
}

// show is a resource or a rule as the API returns it.
func show(kind, name string, options map[string]string) map[string]any {
	row := map[string]any{kind: name}
	for key, value := range options {
		row[key] = value
		if n, err := strconv.Atoi(value); err == nil {
			row[key] = n
		}
	}
	row["digest"] = fmt.Sprintf("%x", sha1.Sum([]byte(fmt.Sprint(name, options))))
	return row
}

// onHA is a handler of the HA stack, which has its rights on the whole datacenter.
func onHA(handle func(c *call, name string) (any, error)) handler {
	return func(c *call) (any, error) {
		privilege := "Sys.Console"
		if c.request.Method == http.MethodGet {
			privilege = "Sys.Audit"
		}
		if err := c.caller.check("/", privilege); err != nil {
			return nil, err
		}
		if strings.HasPrefix(c.request.Path, "cluster/ha/rules") {
			if c.s.config.before(9, 0, 0) {
				text := fmt.Sprintf("Method '%s /%s' not implemented", c.request.Method, c.request.Path)
				return nil, &failure{code: http.StatusNotImplemented, text: text, envelope: true}
			}
			return handle(c, c.get("rule"))
		}
		sid := c.get("sid")
		if id, err := strconv.Atoi(sid); err == nil && c.s.guests[id] == nil {
			return nil, internal("unable to detect SID from VMID - VM/CT %s does not exist", sid)
		} else if err == nil {
			sid = "vm:" + sid
		}
		return handle(c, sid)
	}
}

func sidOf(id int) string { return "vm:" + strconv.Itoa(id) }

// managed is the guest of a resource, if it exists.
func (s *Server) managed(sid string) *guest {
	id, _ := strconv.Atoi(strings.TrimPrefix(sid, "vm:")) //nolint:errcheck // 0 is no guest's id
	return s.guests[id]
}

// resource returns the options of a guest's resource; nil without one.
func (s *Server) resource(sid string) map[string]string {
	if g := s.managed(sid); s.ha.resources[sid] == nil && g != nil && g.HA {
		s.ha.resources[sid] = map[string]string{"type": "vm", "state": "started"}
	}
	return s.ha.resources[sid]
}

func listResources(c *call, _ string) (any, error) {
	for _, g := range c.s.guests {
		c.s.resource(sidOf(g.ID))
	}
	rows := []any{}
	for _, sid := range sortedKeys(c.s.ha.resources) {
		rows = append(rows, show("sid", sid, c.s.ha.resources[sid]))
	}
	return rows, nil
}

func showResource(c *call, sid string) (any, error) {
	options := c.s.resource(sid)
	if options == nil {
		return nil, internal("no such resource '%s'", sid)
	}
	return show("sid", sid, options), nil
}

func addResource(c *call, sid string) (any, error) {
	kind, _, _ := strings.Cut(sid, ":")
	switch g := c.s.managed(sid); {
	case c.get("type") != "" && c.get("type") != kind:
		return nil, internal("types does not match")
	case c.get("group") != "" && !c.s.config.before(9, 0, 0):
		return nil, internal("invalid parameter 'group': ha groups have been migrated to rules")
	case g == nil:
		return nil, internal("resource '%s' does not exist in cluster", sid)
	case g.Kind != "qemu":
		return nil, internal("resource '%s' - guest with ID %d is not a VM", sid, g.ID)
	case c.s.resource(sid) != nil:
		return nil, internal("create resource failed: resource ID '%s' already defined", sid)
	}
	options := map[string]string{"state": "started", "type": kind}
	c.options(options)
	c.s.ha.resources[sid] = options
	c.s.follow(c.s.managed(sid))
	return nil, nil
}

func updateResource(c *call, sid string) (any, error) {
	options := c.s.resource(sid)
	if options == nil {
		return nil, internal("update resources config failed: no such resource '%s'", sid)
	}
	c.options(options)
	c.s.follow(c.s.managed(sid))
	return nil, nil
}

// removeResource takes a guest from the HA stack. It goes on as it is.
func removeResource(c *call, sid string) (any, error) {
	if c.s.resource(sid) == nil {
		return nil, internal("cannot delete service '%s', not HA managed!", sid)
	}
	c.s.unmanage(sid, !c.request.Params.Has("purge") || c.flag("purge"))
	return nil, nil
}

// unmanage removes a resource; purge: from the rules, too, and a rule that has lost its last one.
func (s *Server) unmanage(sid string, purge bool) {
	if delete(s.ha.resources, sid); s.managed(sid) != nil {
		s.managed(sid).HA = false
	}
	for _, name := range sortedKeys(s.ha.rules) {
		if !purge {
			continue
		}
		rest := slices.DeleteFunc(splitList(s.ha.rules[name]["resources"]), func(one string) bool {
			return one == sid
		})
		if s.ha.rules[name]["resources"] = strings.Join(rest, ","); len(rest) == 0 {
			delete(s.ha.rules, name)
		}
	}
}

// follow brings a guest into the state that its resource wants, as the managers of the nodes do in seconds.
func (s *Server) follow(g *guest) {
	if g == nil {
		return
	}
	state := s.ha.resources[sidOf(g.ID)]["state"]
	g.HA = state != "ignored"
	switch {
	case (state == "started" || state == "enabled") && !g.Running:
		s.work(g, "qmstart", start)
	case (state == "stopped" || state == "disabled") && g.Running:
		s.work(g, "qmshutdown", stop)
	}
}

// work launches a task of the HA stack on a guest's node.
func (s *Server) work(g *guest, kind string, do func(*task, *guest) error) {
	c := &call{s: s, caller: caller{id: root}, fault: &Fault{}, request: Request{Params: url.Values{
		"node": {g.Node}, "forceStop": {"1"}, "timeout": {"60"}}}}
	c.powered(kind, g, kind == "qmshutdown", func(t *task) error {
		if s.guests[g.ID] != g {
			return missing(g.Node, "qemu", g.ID)
		}
		return do(t, g)
	})
}

// recover starts the guests of a node that is gone on others. The rest of the cluster has fenced it. A guest
// whose disks only that node has does not start.
func (s *Server) recover(node string) {
	for _, id := range sortedKeys(s.guests) {
		g := s.guests[id]
		if g.Node != node || !g.HA {
			continue
		}
		to := s.refuge(g)
		if to == "" {
			continue
		}
		whole := true
		for volume := range g.ownVolumes() {
			whole = whole && s.disks.get(to, volume) != nil
		}
		if g.Node, g.Running = to, false; whole {
			s.follow(g)
		}
	}
}

// refuge is a node that is online and has no guest from which a rule separates one.
func (s *Server) refuge(g *guest) string {
	taken := func(node string) bool {
		for _, rule := range s.ha.rules {
			members := splitList(rule["resources"])
			if rule["affinity"] != "negative" || !slices.Contains(members, sidOf(g.ID)) {
				continue
			}
			for _, other := range s.guests {
				if other != g && other.Node == node && slices.Contains(members, sidOf(other.ID)) {
					return true
				}
			}
		}
		return false
	}
	for _, node := range s.config.Nodes {
		if !s.offline[node] && !taken(node) {
			return node
		}
	}
	return ""
}

func listRules(c *call, _ string) (any, error) {
	rows := []any{}
	for _, name := range c.s.ha.order {
		if c.s.ha.rules[name] != nil {
			rows = append(rows, show("rule", name, c.s.ha.rules[name]))
		}
	}
	return rows, nil
}

func showRule(c *call, name string) (any, error) {
	if c.s.ha.rules[name] == nil {
		return nil, internal("no such ha rule '%s'", name)
	}
	return show("rule", name, c.s.ha.rules[name]), nil
}

func addRule(c *call, name string) (any, error) {
	if c.s.ha.rules[name] != nil {
		return nil, internal("create ha rule failed: HA rule '%s' already defined", name)
	}
	return c.writeRule(name, map[string]string{}, "create ha rule failed: ")
}

func updateRule(c *call, name string) (any, error) {
	const doing = "update HA rules failed: "
	if c.s.ha.rules[name] == nil {
		return nil, internal(doing+"HA rule '%s' does not exist", name)
	}
	return c.writeRule(name, maps.Clone(c.s.ha.rules[name]), doing)
}

// writeRule stores a rule that the stack can follow.
func (c *call) writeRule(name string, options map[string]string, doing string) (any, error) {
	s := c.s
	c.options(options)
	members := splitList(options["resources"])
	slices.Sort(members)
	options["resources"] = strings.Join(members, ",")
	isManaged := func(sid string) bool { return s.resource(sid) != nil }
	unmanaged := slices.DeleteFunc(slices.Clone(members), isManaged)
	invalid := ""
	switch {
	case len(unmanaged) > 0:
		return nil, internal(doing+"cannot use unmanaged resource(s) %s.", strings.Join(unmanaged, ", "))
	case options["type"] == "resource-affinity" && len(members) < 2:
		invalid = "rule is ineffective as there are less than two resources"
	case options["affinity"] == "negative" && len(members) > len(s.config.Nodes):
		invalid = "rule defines more resources than available nodes"
	}
	if invalid != "" {
		return nil, internal(doing+"400 Rule '%s' is invalid.\n\nresources: %s", name, invalid)
	}
	if s.ha.rules[name] = options; !slices.Contains(s.ha.order, name) {
		s.ha.order = append(s.ha.order, name)
	}
	return nil, nil
}

// removeRule has the same answer for a rule that does not exist.
func removeRule(c *call, name string) (any, error) {
	delete(c.s.ha.rules, name)
	return nil, nil
}

// AddRule adds a rule of the HA stack without an API call: {"type": …, "resources": "vm:421,vm:422", …}.
func (s *Server) AddRule(name string, options map[string]string) {
	defer s.locked()()
	s.ha.rules[name], s.ha.order = options, append(s.ha.order, name)
}

// HAConfig returns the options of the resources, vm:421, and rules that exist.
func (s *Server) HAConfig() map[string]map[string]string {
	defer s.locked()()
	all := map[string]map[string]string{}
	for _, some := range []map[string]map[string]string{s.ha.resources, s.ha.rules} {
		for name, options := range some {
			all[name] = maps.Clone(options)
		}
	}
	return all
}
