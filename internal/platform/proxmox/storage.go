package proxmox

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/zclconf/go-cty/cty"

	"github.com/ephemeral-castle/castle/internal/gate"
)

// PreflightStorage is the name of the preflight of a stage that writes files to a storage.
const PreflightStorage = "proxmox_storage"

// storages refuses to write files to a storage that does not take them, before anything else is built. The
// stage uses a file that is there already, without owning it: its name has the cluster's in it, which another
// state may have, too. A destroy finds the datacenter of the files in the record of this preflight.
func storages() gate.PreflightType {
	return gate.PreflightType{
		Name:    PreflightStorage,
		Summary: "The storage that a stage writes files to is active on each node and takes them",
		Attributes: connected(map[string]gate.Attribute{
			"files": {Type: cty.Map(cty.String), Required: true,
				Help: "The file's name, by the node that writes it: the key of its resource instance."},
			"shared_key": {Type: cty.String,
				Help: "The key of the instance that writes the one file of all nodes, if the storage is " +
					"shared; each node writes one, if not given."},
			"storage": {Type: cty.String, Required: true, Help: "The storage."},
			"content": {Type: cty.String, Required: true, Help: "The content type of the files."},
			"resource": {Type: cty.String, Required: true, Valid: validResource,
				Help: "The resource of the files' instances."},
		}),
		New: func(name string, _ gate.Target, v gate.Values) (p gate.Preflight, err error) {
			check := storageCheck{storage: v.String("storage"), content: v.String("content"),
				resource: v.String("resource"), sharedKey: v.String("shared_key")}
			check.client, err = ClientOf(v)
			if err = errors.Join(err, v.Decode("files", &check.files)); err != nil {
				return p, fmt.Errorf("%s: %w", name, err)
			}
			return gate.Preflight{Name: name, Inspect: check.inspect}, nil
		},
	}
}

// storageCheck is a preflight proxmox_storage with its arguments.
type storageCheck struct {
	client                     *Client
	files                      map[string]string // by node
	storage, content, resource string
	sharedKey                  string // empty if each node writes a file, whatever the storage
}

func (c storageCheck) inspect(ctx context.Context, known []gate.Known, _ func(string)) (
	found gate.Inspection, err error) {
	nodes, err := c.client.Nodes(ctx)
	if err != nil {
		return found, err
	}
	done := map[string]bool{}
	for _, node := range sortedKeys(c.files) {
		key := node
		what := fmt.Sprintf("node %s, which writes to storage %s, is offline or missing", node, c.storage)
		fix := "bring it back, or give its machines another node"
		if status, exists := nodes[node]; exists && status != offline {
			var shared bool
			what, fix, shared, err = StorageProblem(ctx, c.client, node, c.storage, c.content)
			if err != nil {
				return found, err
			}
			if shared && c.sharedKey != "" {
				key = c.sharedKey
			}
		}
		if what != "" {
			found.Unusable = append(found.Unusable, gate.Foreign{What: what, Fixes: []string{fix}})
			continue
		}
		address := fmt.Sprintf("%s[%q]", c.resource, key)
		isKnown := func(k gate.Known) bool { return k.Address == address }
		if done[address] || slices.ContainsFunc(known, isKnown) {
			continue
		}
		done[address] = true
		volumes, err := c.client.Volumes(ctx, node, c.storage, c.content, 0)
		if err != nil {
			return found, err
		}
		volume := c.storage + ":" + c.content + "/" + c.files[node]
		if _, exists := volumes[volume]; exists {
			found.Ours = append(found.Ours, gate.Own{Borrowed: true, Import: gate.Import{
				Address: address, ID: node + "/" + volume, What: "image " + volume + " on node " + node}})
		}
	}
	return found, nil
}

// pool is one that the token may see.
type pool struct {
	ID string `json:"poolid"`
}

func (p pool) Key() string { return p.ID }

// PoolProblem returns why machines cannot be put into a pool, if one is named, and the fix. castle does not
// create the pool: a destroy would delete it, and with it the rights of a token that is limited to it.
func PoolProblem(ctx context.Context, c *Client, name string) (what, fix string, err error) {
	if name == "" {
		return "", "", nil
	}
	all, err := list[pool](ctx, c, "pools")
	if err != nil || slices.Contains(all, pool{name}) {
		return "", "", err
	}
	return "pool " + name + ", where the machines belong, does not exist, or this token may not see it",
		fmt.Sprintf("as root on a node: pveum pool add %s --comment castle; or give the token Pool.Audit "+
			"on /pool/%[1]s", name), nil
}

// StorageProblem returns why a node cannot write content of a type to a storage, and the fix. Both are empty
// if it can. shared: every node sees the same content.
func StorageProblem(ctx context.Context, c *Client, node, storage, content string) (what, fix string,
	shared bool, err error) {
	all, err := c.Storages(ctx, node)
	if err != nil {
		return "", "", false, err
	}
	i := slices.IndexFunc(all, func(s Storage) bool { return s.ID == storage })
	where := fmt.Sprintf("storage %s on node %s", storage, node)
	switch {
	case i < 0:
		return where + " does not exist, or this token may not see it",
			"choose another storage, or give the token Datastore.Audit on /storage/" + storage, false, nil
	case all[i].Active == 0:
		return where + " is not active", "activate it, or choose another storage", false, nil
	case !all[i].Holds(content):
		return fmt.Sprintf("%s does not allow the content %s, only %s", where, content, all[i].Content),
			fmt.Sprintf("add it: pvesm set %s --content %s,%s", storage, all[i].Content, content), false, nil
	}
	return "", "", all[i].Shared == 1, nil
}
