package proxmox

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// route is one call of the API. In a pattern, {x} takes one segment and a last
// {x...} takes the rest. Handlers run with the server locked.
type route struct {
	method, pattern string
	handle          func(*call) (any, error)
}

func (s *Server) table() []route {
	const guest = "nodes/{node}/qemu/{vmid}"
	const content = "nodes/{node}/storage/{storage}"
	return []route{
		{"GET", "version", s.version},
		{"GET", "access/permissions", s.permissions},
		{"POST", "access/ticket", s.login},
		{"GET", "cluster/nextid", s.nextID},
		{"GET", "cluster/resources", s.resources},
		{"GET", "cluster/ha/resources", s.haResources},
		{"DELETE", "cluster/ha/resources/{sid}", s.haRemove},
		{"GET", "cluster/replication", s.replication},
		{"GET", "pools", s.listPools},
		{"PUT", "pools", s.updatePool},
		{"GET", "nodes", s.listNodes},
		{"GET", "nodes/{node}/network", s.network},
		{"GET", "nodes/{node}/query-url-metadata", s.queryURL},
		{"GET", "nodes/{node}/tasks", s.listTasks},
		{"DELETE", "nodes/{node}/tasks/{upid}", s.stopTask},
		{"GET", "nodes/{node}/tasks/{upid}/status", s.taskStatus},
		{"GET", "nodes/{node}/tasks/{upid}/log", s.taskLog},
		{"GET", "nodes/{node}/storage", s.listStorages},
		{"GET", content + "/status", s.storageStatus},
		{"GET", content + "/content", s.listContent},
		{"GET", content + "/content/{volume...}", s.showVolume},
		{"DELETE", content + "/content/{volume...}", s.deleteVolume},
		{"POST", content + "/download-url", s.download},
		{"GET", "nodes/{node}/qemu", s.listGuests},
		{"POST", "nodes/{node}/qemu", s.create},
		{"GET", "nodes/{node}/lxc/{vmid}/config", s.showContainer},
		{"DELETE", guest, s.destroy},
		{"GET", guest + "/config", s.showConfig},
		{"PUT", guest + "/config", s.updateConfig},
		{"POST", guest + "/config", s.updateConfigTask},
		{"PUT", guest + "/resize", s.resize},
		{"PUT", guest + "/cloudinit", s.regenerate},
		{"GET", guest + "/snapshot", s.snapshots},
		{"GET", guest + "/status/current", s.current},
		{"POST", guest + "/status/start", s.start},
		{"POST", guest + "/status/stop", s.stop},
		{"POST", guest + "/status/shutdown", s.shutdown},
		{"POST", guest + "/status/reboot", s.reboot},
		{"POST", guest + "/agent/ping", s.agentPing},
		{"GET", guest + "/agent/network-get-interfaces", s.agentInterfaces},
	}
}

// match finds the call's route and fills its variables.
func (s *Server) match(c *call, segments []string) error {
	for _, r := range s.routes {
		if r.method != c.method {
			continue
		}
		if vars, ok := capture(strings.Split(r.pattern, "/"), segments); ok {
			c.route, c.vars = r, vars
			return c.checkVars()
		}
	}
	return &failure{code: http.StatusNotImplemented, text: fmt.Sprintf("Method '%s /%s' not implemented", c.method, c.path), envelope: true}
}

func capture(pattern, segments []string) (map[string]string, bool) {
	vars := map[string]string{}
	for i, p := range pattern {
		if i >= len(segments) {
			return nil, false
		}
		name, variable := strings.CutPrefix(p, "{")
		switch {
		case !variable && p != segments[i]:
			return nil, false
		case strings.HasSuffix(name, "...}"):
			vars[strings.TrimSuffix(name, "...}")] = strings.Join(segments[i:], "/")
			return vars, true
		case variable:
			vars[strings.TrimSuffix(name, "}")] = segments[i]
		}
	}
	return vars, len(pattern) == len(segments)
}

func (c *call) checkVars() error {
	if id, ok := c.vars["vmid"]; ok {
		if n, err := strconv.Atoi(id); err != nil || n < 100 || n > 999999999 {
			return badParameter("vmid", "invalid format - value does not look like a valid VM ID\n")
		}
	}
	return nil
}

// answer authenticates and runs the call's handler.
func (s *Server) answer(c *call, r *http.Request) (any, error) {
	if c.route.pattern != "access/ticket" {
		user, err := s.authenticate(r)
		if err != nil {
			return nil, err
		}
		c.user = user
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	c.fault = s.takeFault(c)
	if f := c.fault; f != nil && f.Code != 0 {
		return nil, &failure{code: f.Code, text: f.Text, envelope: f.Code < 595}
	}
	if m := s.machines[c.vmid()]; m != nil && c.fault != nil && c.fault.Lock != "" {
		m.options["lock"] = c.fault.Lock
	}
	if node, ok := c.vars["node"]; ok {
		switch {
		case !slices.Contains(s.config.Nodes, node):
			return nil, internal("hostname lookup '%s' failed - failed to get address info for: %s: Name or service not known", node, node)
		case s.offline[node]:
			return nil, &failure{code: 595, text: "No route to host"}
		}
	}
	return c.route.handle(c)
}
