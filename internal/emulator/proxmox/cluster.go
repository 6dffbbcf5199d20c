package proxmox

import (
	"fmt"
	"strconv"
	"strings"
)

// cluster answers the calls about nodes, pools, high availability and replication.
type cluster struct {
	config  *Config
	guests  *guests
	offline map[string]bool // by node
}

func (l *cluster) routes() []route {
	return []route{
		{"GET", "cluster/resources", l.resources},
		{"GET", "cluster/ha/resources", l.haResources},
		{"DELETE", "cluster/ha/resources/{sid}", l.haRemove},
		{"GET", "cluster/replication", l.replication},
		{"GET", "pools", l.listPools},
		{"PUT", "pools", l.updatePool},
		{"GET", "nodes", func(*call) (any, error) { return l.nodeRows(), nil }},
		{"GET", "nodes/{node}/network", l.network},
	}
}

// resources lists the objects that the caller may see.
func (l *cluster) resources(c *call) (any, error) {
	rows, kind := []any{}, c.get("type")
	if kind == "" || kind == "node" {
		rows = append(rows, l.nodeRows()...)
	}
	if kind == "" || kind == "storage" {
		for _, node := range l.config.Nodes {
			for _, st := range l.config.Storages {
				rows = append(rows, map[string]any{
					"id": "storage/" + node + "/" + st.ID, "type": "storage", "storage": st.ID, "node": node,
					"status": "available", "plugintype": st.Type, "shared": 0,
				})
			}
		}
	}
	if kind != "" && kind != "vm" {
		return rows, nil
	}
	return append(rows, l.guests.rows(func(g *guest) map[string]any {
		if !l.guests.visible(g) {
			return nil
		}
		row := g.row()
		row["id"], row["type"], row["node"] = g.Kind+"/"+strconv.Itoa(g.ID), g.Kind, g.Node
		row["template"] = number(g.Config["template"] == "1")
		if g.Pool != "" {
			row["pool"] = g.Pool
		}
		if g.HA {
			row["hastate"] = "started"
		}
		if l.offline[g.Node] {
			row["status"] = "unknown"
		}
		return row
	})...), nil
}

func (l *cluster) nodeRows() []any {
	rows := []any{}
	for _, node := range l.config.Nodes {
		status := "online"
		if l.offline[node] {
			status = "offline"
		}
		rows = append(rows, map[string]any{
			"id": "node/" + node, "type": "node", "node": node, "status": status, "maxcpu": 32,
			"maxmem":  256 << 30,
			"maxdisk": 1 << 40, "cpu": 0, "mem": 0, "disk": 0, "uptime": 86400, "level": "",
		})
	}
	return rows
}

func (l *cluster) network(*call) (any, error) {
	return []any{map[string]any{
		"iface": "vmbr0", "type": "bridge", "active": 1, "autostart": 1, "method": "manual",
		"method6":  "manual",
		"priority": 3,
	}}, nil
}

func (l *cluster) haResources(*call) (any, error) {
	return l.guests.rows(func(g *guest) map[string]any {
		if !g.HA {
			return nil
		}
		return map[string]any{"sid": fmt.Sprintf("vm:%d", g.ID), "type": "vm", "state": "started"}
	}), nil
}

func (l *cluster) haRemove(c *call) (any, error) {
	sid := strings.TrimPrefix(c.vars["sid"], "vm:")
	id, err := strconv.Atoi(sid)
	g := l.guests.all[id]
	if err != nil || g == nil || !g.HA {
		return nil, internal("cannot delete service 'vm:%s', not HA managed!", sid)
	}
	g.HA = false
	return nil, nil
}

func (l *cluster) replication(*call) (any, error) {
	return l.guests.rows(func(g *guest) map[string]any {
		if !g.Replicated {
			return nil
		}
		return map[string]any{"id": fmt.Sprintf("%d-0", g.ID), "guest": g.ID, "jobnum": 0, "type": "local"}
	}), nil
}

// listPools lists the pools; a single one has its members, too.
func (l *cluster) listPools(c *call) (any, error) {
	want := c.get("poolid")
	if want == "" {
		rows := []any{}
		for _, pool := range sortedKeys(l.guests.pools) {
			rows = append(rows, map[string]any{"poolid": pool, "comment": l.guests.pools[pool]})
		}
		return rows, nil
	}
	comment, ok := l.guests.pools[want]
	if !ok {
		return nil, internal("pool '%s' does not exist", want)
	}
	members := l.guests.rows(func(g *guest) map[string]any {
		if g.Pool != want {
			return nil
		}
		id := g.Kind + "/" + strconv.Itoa(g.ID)
		return map[string]any{"id": id, "node": g.Node, "type": g.Kind, "vmid": g.ID, "name": g.name()}
	})
	return []any{map[string]any{"poolid": want, "comment": comment, "members": members}}, nil
}

// updatePool moves guests into a pool or, with delete, out of it.
func (l *cluster) updatePool(c *call) (any, error) {
	pool := c.get("poolid")
	if _, ok := l.guests.pools[pool]; !ok {
		return nil, internal("pool '%s' does not exist", pool)
	}
	for id := range strings.SplitSeq(c.get("vms"), ",") {
		n, err := strconv.Atoi(id)
		g := l.guests.all[n]
		switch {
		case err != nil || g == nil:
			return nil, internal("VM %s is not a pool member", id)
		case c.flag("delete"):
			g.Pool = ""
		default:
			g.Pool = pool
		}
	}
	return nil, nil
}
