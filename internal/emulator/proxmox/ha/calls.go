package ha

import (
	"crypto/sha1"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/ephemeral-castle/castle/internal/emulator/proxmox/failure"
	"github.com/ephemeral-castle/castle/internal/emulator/proxmox/option"
	"github.com/ephemeral-castle/castle/internal/emulator/proxmox/rpc"
)

const haOptions = "state comment failback group max_restart max_relocate type affinity resources nodes strict"

// readOptions reads the options of a resource or a rule from a call.
func readOptions(c *rpc.Call, into map[string]string) {
	for key := range strings.FieldsSeq(haOptions) {
		if value := c.Get(key); value != "" {
			into[key] = value
		}
	}
	if c.Flag("disable") {
		into["disable"] = "1"
	} else if c.Request.Params.Has("disable") {
		delete(into, "disable")
	}
	for _, key := range option.SplitList(c.Get("delete")) {
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
	row["digest"] = fmt.Sprintf("%x", sha1.Sum(fmt.Append(nil, name, options)))
	return row
}

// Routes has the calls of the HA stack.
func (s *Stack) Routes() map[string]rpc.Handler {
	return map[string]rpc.Handler{
		"GET cluster/ha/resources":          s.onHA(s.listResources),
		"POST cluster/ha/resources":         s.onHA(s.addResource),
		"GET cluster/ha/resources/{sid}":    s.onHA(s.showResource),
		"PUT cluster/ha/resources/{sid}":    s.onHA(s.updateResource),
		"DELETE cluster/ha/resources/{sid}": s.onHA(s.removeResource),
		"GET cluster/ha/rules":              s.onHA(s.listRules),
		"POST cluster/ha/rules":             s.onHA(s.addRule),
		"GET cluster/ha/rules/{rule}":       s.onHA(s.showRule),
		"PUT cluster/ha/rules/{rule}":       s.onHA(s.updateRule),
		"DELETE cluster/ha/rules/{rule}":    s.onHA(s.removeRule),
	}
}

// onHA is a handler of the HA stack, which has its rights on the whole datacenter.
func (s *Stack) onHA(handle func(c *rpc.Call, name string) (any, error)) rpc.Handler {
	return func(c *rpc.Call) (any, error) {
		privilege := "Sys.Console"
		if c.Request.Method == http.MethodGet {
			privilege = "Sys.Audit"
		}
		if err := c.Caller.Check("/", privilege); err != nil {
			return nil, err
		}
		if strings.HasPrefix(c.Request.Path, "cluster/ha/rules") {
			if !s.config.Rules {
				return nil, failure.NotImplemented(c.Request.Method, c.Request.Path)
			}
			return handle(c, c.Get("rule"))
		}
		sid := c.Get("sid")
		if id, err := strconv.Atoi(sid); err == nil && s.guests.Get(id) == nil {
			return nil, failure.Internal("unable to detect SID from VMID - VM/CT %s does not exist", sid)
		} else if err == nil {
			sid = "vm:" + sid
		}
		return handle(c, sid)
	}
}

func (s *Stack) listResources(c *rpc.Call, _ string) (any, error) {
	for _, g := range s.guests.All() {
		s.resource(sidOf(g.ID))
	}
	rows := []any{}
	for _, sid := range slices.Sorted(maps.Keys(s.resources)) {
		rows = append(rows, show("sid", sid, s.resources[sid]))
	}
	return rows, nil
}

func (s *Stack) showResource(c *rpc.Call, sid string) (any, error) {
	options := s.resource(sid)
	if options == nil {
		return nil, failure.Internal("no such resource '%s'", sid)
	}
	return show("sid", sid, options), nil
}

func (s *Stack) addResource(c *rpc.Call, sid string) (any, error) {
	kind, _, _ := strings.Cut(sid, ":")
	switch g := s.managed(sid); {
	case c.Get("type") != "" && c.Get("type") != kind:
		return nil, failure.Internal("types does not match")
	case c.Get("group") != "" && s.config.Rules:
		return nil, failure.Internal("invalid parameter 'group': ha groups have been migrated to rules")
	case g == nil:
		return nil, failure.Internal("resource '%s' does not exist in cluster", sid)
	case g.Kind != "qemu":
		return nil, failure.Internal("resource '%s' - guest with ID %d is not a VM", sid, g.ID)
	case s.resource(sid) != nil:
		return nil, failure.Internal("create resource failed: resource ID '%s' already defined", sid)
	}
	options := map[string]string{"state": "started", "type": kind}
	readOptions(c, options)
	s.resources[sid] = options
	s.follow(s.managed(sid))
	return nil, nil
}

func (s *Stack) updateResource(c *rpc.Call, sid string) (any, error) {
	options := s.resource(sid)
	if options == nil {
		return nil, failure.Internal("update resources config failed: no such resource '%s'", sid)
	}
	readOptions(c, options)
	s.follow(s.managed(sid))
	return nil, nil
}

// removeResource takes a guest from the HA stack. It goes on as it is.
func (s *Stack) removeResource(c *rpc.Call, sid string) (any, error) {
	if s.resource(sid) == nil {
		return nil, failure.Internal("cannot delete service '%s', not HA managed!", sid)
	}
	s.unmanage(sid, !c.Request.Params.Has("purge") || c.Flag("purge"))
	return nil, nil
}

func (s *Stack) listRules(c *rpc.Call, _ string) (any, error) {
	rows := []any{}
	for _, name := range s.order {
		if s.rules[name] != nil {
			rows = append(rows, show("rule", name, s.rules[name]))
		}
	}
	return rows, nil
}

func (s *Stack) showRule(c *rpc.Call, name string) (any, error) {
	if s.rules[name] == nil {
		return nil, failure.Internal("no such ha rule '%s'", name)
	}
	return show("rule", name, s.rules[name]), nil
}

func (s *Stack) addRule(c *rpc.Call, name string) (any, error) {
	if s.rules[name] != nil {
		return nil, failure.Internal("create ha rule failed: HA rule '%s' already defined", name)
	}
	return s.writeRule(c, name, map[string]string{}, "create ha rule failed: ")
}

func (s *Stack) updateRule(c *rpc.Call, name string) (any, error) {
	const doing = "update HA rules failed: "
	if s.rules[name] == nil {
		return nil, failure.Internal(doing+"HA rule '%s' does not exist", name)
	}
	return s.writeRule(c, name, maps.Clone(s.rules[name]), doing)
}

// writeRule stores a rule that the stack can follow.
func (s *Stack) writeRule(c *rpc.Call, name string, options map[string]string, doing string) (any, error) {
	readOptions(c, options)
	members := option.SplitList(options["resources"])
	slices.Sort(members)
	options["resources"] = strings.Join(members, ",")
	isManaged := func(sid string) bool { return s.resource(sid) != nil }
	unmanaged := slices.DeleteFunc(slices.Clone(members), isManaged)
	invalid := ""
	switch {
	case len(unmanaged) > 0:
		return nil, failure.Internal(doing+"cannot use unmanaged resource(s) %s.",
			strings.Join(unmanaged, ", "))
	case options["type"] == "resource-affinity" && len(members) < 2:
		invalid = "rule is ineffective as there are less than two resources"
	case options["affinity"] == "negative" && len(members) > len(s.config.Nodes):
		invalid = "rule defines more resources than available nodes"
	}
	if invalid != "" {
		return nil, failure.Internal(doing+"400 Rule '%s' is invalid.\n\nresources: %s", name, invalid)
	}
	if s.rules[name] = options; !slices.Contains(s.order, name) {
		s.order = append(s.order, name)
	}
	return nil, nil
}

// removeRule has the same answer for a rule that does not exist.
func (s *Stack) removeRule(c *rpc.Call, name string) (any, error) {
	delete(s.rules, name)
	return nil, nil
}
