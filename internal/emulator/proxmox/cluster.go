package proxmox

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// resources lists the objects that the caller may see.
func resources(c *call) (any, error) {
	s, rows, kind := c.s, []any{}, c.get("type")
	if kind == "" || kind == "node" {
		rows = append(rows, nodeRows(s)...)
	}
	if kind == "" || kind == "storage" {
		for _, node := range s.config.Nodes {
			for _, st := range s.config.Storages {
				if !c.caller.may("/storage/"+st.ID, "Datastore.Audit") {
					continue
				}
				rows = append(rows, map[string]any{
					"id": "storage/" + node + "/" + st.ID, "type": "storage", "storage": st.ID, "node": node,
					"status": "available", "plugintype": st.Type, "shared": number(st.Shared),
					"content": strings.Join(st.Content, ","),
				})
			}
		}
	}
	if kind != "" && kind != "vm" {
		return rows, nil
	}
	return append(rows, c.rows(func(g *guest) map[string]any {
		if !c.caller.may(vmPath(g.ID), "VM.Audit") {
			return nil
		}
		row := g.row()
		row["id"], row["type"], row["node"] = g.path(), g.Kind, g.Node
		row["template"] = number(g.Config["template"] == "1")
		if g.Pool != "" && c.caller.may("/pool/"+g.Pool, "Pool.Audit") {
			row["pool"] = g.Pool
		}
		if g.HA {
			row["hastate"] = s.resource(sidOf(g.ID))["state"]
		}
		if s.offline[g.Node] {
			row["status"] = "unknown"
		}
		return row
	})...), nil
}

func nodeRows(s *Server) []any {
	rows := []any{}
	for _, node := range s.config.Nodes {
		status := map[bool]string{false: "online", true: "offline"}[s.offline[node]]
		rows = append(rows, map[string]any{
			"id": "node/" + node, "type": "node", "node": node, "status": status, "level": "",
			"maxcpu": 32, "maxmem": 256 << 30, "maxdisk": 1 << 40, "cpu": 0, "mem": 0, "disk": 0,
			"uptime": 86400,
		})
	}
	return rows
}

func replication(c *call) (any, error) {
	return c.rows(func(g *guest) map[string]any {
		if !g.Replicated || !c.caller.may(vmPath(g.ID), "VM.Audit") {
			return nil
		}
		return map[string]any{"id": fmt.Sprintf("%d-0", g.ID), "guest": g.ID, "jobnum": 0, "type": "local"}
	}), nil
}

// listPools lists the pools; a single one has its members, too, and needs no privilege.
func listPools(c *call) (any, error) {
	want := c.get("poolid")
	if want != "" && !c.s.pools[want] {
		return nil, internal("pool '%s' does not exist", want)
	}
	rows := []any{}
	for _, pool := range sortedKeys(c.s.pools) {
		row := map[string]any{"poolid": pool, "comment": ""}
		switch want {
		case pool:
			row["members"] = c.rows(func(g *guest) map[string]any {
				if g.Pool != pool {
					return nil
				}
				return map[string]any{
					"id": g.path(), "node": g.Node, "type": g.Kind, "vmid": g.ID, "name": g.name(),
				}
			})
			return []any{row}, nil
		case "":
			if c.caller.may("/pool/"+pool, "Pool.Audit") {
				rows = append(rows, row)
			}
		}
	}
	return rows, nil
}

// updatePool adds machines to a pool, or removes them from it.
func updatePool(c *call) (any, error) {
	pool, remove := c.get("poolid"), c.flag("delete")
	if err := c.caller.check("/pool/"+pool, "Pool.Allocate"); err != nil {
		return nil, err
	}
	if !c.s.pools[pool] {
		return nil, internal("pool '%s' does not exist", pool)
	}
	var members []*guest
	for _, g := range c.s.guests {
		if !slices.Contains(splitList(c.get("vms")), strconv.Itoa(g.ID)) {
			continue
		}
		if err := c.caller.checkAny(vmPath(g.ID), "Permissions.Modify", "VM.Allocate"); err != nil {
			return nil, err
		}
		switch {
		case remove && g.Pool != pool:
			return nil, internal("VM %d is not a pool member", g.ID)
		case !remove && g.Pool == pool:
			return nil, internal("VM %d is already a pool member", g.ID)
		case !remove && g.Pool != "" && !c.flag("allow-move"):
			return nil, internal("VM %d belongs already to pool '%s' and 'allow-move' is not set", g.ID,
				g.Pool)
		}
		members = append(members, g)
	}
	for _, g := range members {
		if g.Pool = pool; remove {
			g.Pool = ""
		}
	}
	return nil, nil
}
