package proxmox

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

func (s *Server) version(*call) (any, error) {
	release, _, _ := strings.Cut(s.config.Version, ".")
	if parts := strings.SplitN(s.config.Version, ".", 3); len(parts) > 1 {
		release = parts[0] + "." + parts[1]
	}
	return map[string]any{"version": s.config.Version, "release": release, "repoid": "8f2c4a61"}, nil
}

// nextID answers for everyone and for every guest, seen or not, containers
// included: it is the only way to learn whether an id is taken.
func (s *Server) nextID(c *call) (any, error) {
	if want := c.get("vmid"); want != "" {
		id, err := strconv.Atoi(want)
		if err != nil || id < 100 {
			return nil, badParameter("vmid", "invalid format - value does not look like a valid VM ID\n")
		}
		if s.machines[id] != nil {
			return nil, badParameter("vmid", fmt.Sprintf("VM %d already exists", id))
		}
		return want, nil
	}
	id := 100
	for s.machines[id] != nil {
		id++
	}
	return strconv.Itoa(id), nil
}

// row is a guest as lists show it.
func (m *machine) row() map[string]any {
	cores, _ := strconv.Atoi(m.options["cores"])   //nolint:errcheck // 0 becomes 1
	memory, _ := strconv.Atoi(m.options["memory"]) //nolint:errcheck // 0 becomes the default
	if memory == 0 {
		memory = 512
	}
	row := map[string]any{
		"vmid": m.id, "name": m.name(), "status": m.status(), "maxcpu": max(cores, 1), "maxmem": memory << 20, "maxdisk": 0,
		"cpu": 0, "mem": 0, "disk": 0, "netin": 0, "netout": 0, "diskread": 0, "diskwrite": 0, "uptime": 0,
	}
	if m.running {
		row["uptime"] = int(time.Since(m.started).Seconds())
	}
	for _, key := range []string{"tags", "lock"} {
		if value := m.options[key]; value != "" {
			row[key] = value
		}
	}
	if m.options["template"] == "1" {
		row["template"] = 1
	}
	return row
}

// resources lists what the caller may see, and nothing else.
func (s *Server) resources(c *call) (any, error) {
	rows := []any{}
	kind := c.get("type")
	if kind == "" || kind == "node" {
		for _, node := range s.config.Nodes {
			rows = append(rows, s.nodeRow(node))
		}
	}
	if kind == "" || kind == "storage" {
		for _, node := range s.config.Nodes {
			for _, st := range s.config.Storages {
				rows = append(rows, map[string]any{
					"id": "storage/" + node + "/" + st.ID, "type": "storage", "storage": st.ID, "node": node, "status": "available",
					"plugintype": st.Type, "shared": 0,
				})
			}
		}
	}
	for _, id := range slices.Sorted(maps.Keys(s.machines)) {
		m := s.machines[id]
		if (kind != "" && kind != "vm") || !s.sees(m) {
			continue
		}
		row := m.row()
		row["id"], row["type"], row["node"], row["template"] = m.kind+"/"+strconv.Itoa(id), m.kind, m.node, number(m.options["template"] == "1")
		if m.pool != "" {
			row["pool"] = m.pool
		}
		if m.ha {
			row["hastate"] = "started"
		}
		if s.offline[m.node] {
			row["status"] = "unknown"
		}
		rows = append(rows, row)
	}
	return rows, nil
}

func (s *Server) nodeRow(node string) map[string]any {
	status := "online"
	if s.offline[node] {
		status = "offline"
	}
	return map[string]any{
		"id": "node/" + node, "type": "node", "node": node, "status": status, "maxcpu": 32, "maxmem": 256 << 30, "maxdisk": 1 << 40,
		"cpu": 0, "mem": 0, "disk": 0, "uptime": 86400, "level": "",
	}
}

func (s *Server) listNodes(*call) (any, error) {
	rows := []any{}
	for _, node := range s.config.Nodes {
		rows = append(rows, s.nodeRow(node))
	}
	return rows, nil
}

func (s *Server) listGuests(c *call) (any, error) {
	rows := []any{}
	for _, id := range slices.Sorted(maps.Keys(s.machines)) {
		if m := s.machines[id]; m.kind == "qemu" && m.node == c.vars["node"] && s.sees(m) {
			rows = append(rows, m.row())
		}
	}
	return rows, nil
}

func (s *Server) network(*call) (any, error) {
	return []any{map[string]any{"iface": "vmbr0", "type": "bridge", "active": 1, "autostart": 1, "method": "manual", "method6": "manual", "priority": 3}}, nil
}

func (s *Server) haResources(*call) (any, error) {
	rows := []any{}
	for _, id := range slices.Sorted(maps.Keys(s.machines)) {
		if s.machines[id].ha {
			rows = append(rows, map[string]any{"sid": fmt.Sprintf("vm:%d", id), "type": "vm", "state": "started"})
		}
	}
	return rows, nil
}

func (s *Server) haRemove(c *call) (any, error) {
	sid := c.vars["sid"]
	id, err := strconv.Atoi(strings.TrimPrefix(sid, "vm:"))
	m := s.machines[id]
	if err != nil || m == nil || !m.ha {
		return nil, internal("cannot delete service 'vm:%s', not HA managed!", strings.TrimPrefix(sid, "vm:"))
	}
	m.ha = false
	return nil, nil
}

func (s *Server) replication(*call) (any, error) {
	rows := []any{}
	for _, id := range slices.Sorted(maps.Keys(s.machines)) {
		if s.machines[id].replicated {
			rows = append(rows, map[string]any{"id": fmt.Sprintf("%d-0", id), "guest": id, "jobnum": 0, "type": "local"})
		}
	}
	return rows, nil
}

// listPools lists the pools, with members when one is asked for.
func (s *Server) listPools(c *call) (any, error) {
	rows := []any{}
	want := c.get("poolid")
	for _, pool := range slices.Sorted(maps.Keys(s.pools)) {
		if want != "" && want != pool {
			continue
		}
		row := map[string]any{"poolid": pool, "comment": s.pools[pool]}
		if want != "" {
			members := []any{}
			for _, id := range slices.Sorted(maps.Keys(s.machines)) {
				if m := s.machines[id]; m.pool == pool {
					members = append(members, map[string]any{"id": m.kind + "/" + strconv.Itoa(id), "node": m.node, "type": m.kind, "vmid": id, "name": m.name()})
				}
			}
			row["members"] = members
		}
		rows = append(rows, row)
	}
	if want != "" && len(rows) == 0 {
		return nil, internal("pool '%s' does not exist", want)
	}
	return rows, nil
}

// updatePool moves guests into a pool or, with delete, out of it.
func (s *Server) updatePool(c *call) (any, error) {
	pool := c.get("poolid")
	if _, ok := s.pools[pool]; !ok {
		return nil, internal("pool '%s' does not exist", pool)
	}
	for id := range strings.SplitSeq(c.get("vms"), ",") {
		n, err := strconv.Atoi(id)
		m := s.machines[n]
		switch {
		case err != nil || m == nil:
			return nil, internal("VM %s is not a pool member", id)
		case c.flag("delete"):
			m.pool = ""
		default:
			m.pool = pool
		}
	}
	return nil, nil
}
