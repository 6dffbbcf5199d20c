package guest

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/ephemeral-castle/castle/internal/emulator/proxmox/access"
	"github.com/ephemeral-castle/castle/internal/emulator/proxmox/failure"
	"github.com/ephemeral-castle/castle/internal/emulator/proxmox/option"
	"github.com/ephemeral-castle/castle/internal/emulator/proxmox/rpc"
)

func (s *Guests) replication(c *rpc.Call) (any, error) {
	return s.Rows(func(g *Guest) map[string]any {
		if !g.Replicated || !c.Caller.May(access.VMPath(g.ID), "VM.Audit") {
			return nil
		}
		return map[string]any{"id": fmt.Sprintf("%d-0", g.ID), "guest": g.ID, "jobnum": 0, "type": "local"}
	}), nil
}

// listPools lists the pools; a single one has its members, too, and needs no privilege.
func (s *Guests) listPools(c *rpc.Call) (any, error) {
	want := c.Get("poolid")
	if want != "" && !s.pools[want] {
		return nil, failure.Internal("pool '%s' does not exist", want)
	}
	rows := []any{}
	for _, pool := range sortedKeys(s.pools) {
		row := map[string]any{"poolid": pool, "comment": ""}
		switch want {
		case pool:
			row["members"] = s.Rows(func(g *Guest) map[string]any {
				if g.Pool != pool {
					return nil
				}
				return map[string]any{
					"id": g.Path(), "node": g.Node, "type": g.Kind, "vmid": g.ID, "name": g.name(),
				}
			})
			return []any{row}, nil
		case "":
			if c.Caller.May("/pool/"+pool, "Pool.Audit") {
				rows = append(rows, row)
			}
		}
	}
	return rows, nil
}

// updatePool adds machines to a pool, or removes them from it.
func (s *Guests) updatePool(c *rpc.Call) (any, error) {
	pool, remove := c.Get("poolid"), c.Flag("delete")
	if err := c.Caller.Check("/pool/"+pool, "Pool.Allocate"); err != nil {
		return nil, err
	}
	if !s.pools[pool] {
		return nil, failure.Internal("pool '%s' does not exist", pool)
	}
	var members []*Guest
	for _, g := range s.all {
		if !slices.Contains(option.SplitList(c.Get("vms")), strconv.Itoa(g.ID)) {
			continue
		}
		if err := c.Caller.CheckAny(access.VMPath(g.ID), "Permissions.Modify", "VM.Allocate"); err != nil {
			return nil, err
		}
		switch {
		case remove && g.Pool != pool:
			return nil, failure.Internal("VM %d is not a pool member", g.ID)
		case !remove && g.Pool == pool:
			return nil, failure.Internal("VM %d is already a pool member", g.ID)
		case !remove && g.Pool != "" && !c.Flag("allow-move"):
			return nil, failure.Internal("VM %d belongs already to pool '%s' and 'allow-move' is not set",
				g.ID, g.Pool)
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
