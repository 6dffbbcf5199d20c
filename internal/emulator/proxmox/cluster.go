package proxmox

import (
	"strings"

	"github.com/ephemeral-castle/castle/internal/emulator/proxmox/access"
	"github.com/ephemeral-castle/castle/internal/emulator/proxmox/guest"
	"github.com/ephemeral-castle/castle/internal/emulator/proxmox/option"
	"github.com/ephemeral-castle/castle/internal/emulator/proxmox/rpc"
)

// resources lists the objects that the caller may see.
func (s *Server) resources(c *rpc.Call) (any, error) {
	rows, kind := []any{}, c.Get("type")
	if kind == "" || kind == "node" {
		rows = append(rows, s.nodeRows()...)
	}
	if kind == "" || kind == "storage" {
		for _, node := range s.config.Nodes {
			for _, st := range s.config.Storages {
				if !c.Caller.May("/storage/"+st.ID, "Datastore.Audit") {
					continue
				}
				rows = append(rows, map[string]any{
					"id": "storage/" + node + "/" + st.ID, "type": "storage", "storage": st.ID, "node": node,
					"status": "available", "plugintype": st.Type, "shared": option.Number(st.Shared),
					"content": strings.Join(st.Content, ","),
				})
			}
		}
	}
	if kind != "" && kind != "vm" {
		return rows, nil
	}
	return append(rows, s.guests.Rows(func(g *guest.Guest) map[string]any {
		if !c.Caller.May(access.VMPath(g.ID), "VM.Audit") {
			return nil
		}
		row := g.Row()
		row["id"], row["type"], row["node"] = g.Path(), g.Kind, g.Node
		row["template"] = option.Number(g.Config["template"] == "1")
		if g.Pool != "" && c.Caller.May("/pool/"+g.Pool, "Pool.Audit") {
			row["pool"] = g.Pool
		}
		if g.HA {
			row["hastate"] = s.ha.State(g)
		}
		if s.offline[g.Node] {
			row["status"] = "unknown"
		}
		return row
	})...), nil
}

func (s *Server) listNodes(*rpc.Call) (any, error) { return s.nodeRows(), nil }

func (s *Server) nodeRows() []any {
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
