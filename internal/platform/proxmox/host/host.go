// Package host reads what the nodes of a Proxmox datacenter offer to machines: pools, storages, bridges,
// mapped devices and images. Proxmox checks little of it when it creates a machine: a bridge or a device that
// does not exist fails the machine's start, when others run already. So castle reads all of it before.
package host

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/ephemeral-castle/castle/internal/platform/proxmox/session"
)

// Hosts are the nodes of a datacenter, as a token sees them.
type Hosts struct{ Session *session.Session }

// Problem is something that a machine cannot use, and the fix.
type Problem struct{ What, Fix string }

// Storage is a storage as one node sees it.
type Storage struct {
	ID      string `json:"storage"`
	Type    string `json:"type"`    // such as lvmthin
	Content string `json:"content"` // comma-separated
	Active  int    `json:"active"`
	Shared  int    `json:"shared"`
}

// Key tells the storage from others.
func (s Storage) Key() string { return s.ID }

// Holds reports whether the storage may have content of a type.
func (s Storage) Holds(content string) bool {
	return slices.Contains(strings.Split(s.Content, ","), content)
}

// Storages lists the enabled storages of a node that the token may see.
func (h Hosts) Storages(ctx context.Context, node string) ([]Storage, error) {
	return session.List[Storage](ctx, h.Session, session.Path("nodes/%s/storage?enabled=1", node))
}

// pool is one that the token may see.
type pool struct {
	ID string `json:"poolid"`
}

func (p pool) Key() string { return p.ID }

// PoolProblem returns why machines cannot be put into a pool, if one is named. castle does not create the
// pool: a destroy would delete it, and with it the rights of a token that is limited to it.
func (h Hosts) PoolProblem(ctx context.Context, name string) (p Problem, err error) {
	if name == "" {
		return p, nil
	}
	all, err := session.List[pool](ctx, h.Session, "pools")
	if err != nil || slices.Contains(all, pool{name}) {
		return p, err
	}
	return Problem{
		"pool " + name + ", where the machines belong, does not exist, or this token may not see it",
		fmt.Sprintf("as root on a node: pveum pool add %s --comment castle; or give the token Pool.Audit "+
			"on /pool/%[1]s", name)}, nil
}

// StorageProblem returns why a node cannot write content of a type to a storage; none if it can. shared:
// every node sees the same content.
func (h Hosts) StorageProblem(ctx context.Context, node, storage, content string) (p Problem, shared bool,
	err error) {
	all, err := h.Storages(ctx, node)
	if err != nil {
		return p, false, err
	}
	i := slices.IndexFunc(all, func(s Storage) bool { return s.ID == storage })
	where := fmt.Sprintf("storage %s on node %s", storage, node)
	switch {
	case i < 0:
		return Problem{where + " does not exist, or this token may not see it",
			"choose another storage, or give the token Datastore.Audit on /storage/" + storage}, false, nil
	case all[i].Active == 0:
		return Problem{where + " is not active", "activate it, or choose another storage"}, false, nil
	case !all[i].Holds(content):
		return Problem{fmt.Sprintf("%s does not allow the content %s, only %s", where, content,
			all[i].Content), fmt.Sprintf("add it: pvesm set %s --content %s,%s", storage, all[i].Content,
			content)}, false, nil
	}
	return p, all[i].Shared == 1, nil
}
