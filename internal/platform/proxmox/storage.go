package proxmox

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/zclconf/go-cty/cty"

	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/platform/proxmox/host"
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
				Help: "The file's name, by the key of its resource instance: the node that writes it; of " +
					"several files, with a slash and a name of its own."},
			"shared_key": {Type: cty.String,
				Help: "What stands in a key instead of the node, if the storage is shared: one instance " +
					"writes the file of all nodes. Each node writes one, if not given."},
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
	files                      map[string]string // by the key of the instance: node or node/name
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
	for _, key := range sortedKeys(c.files) {
		file := c.files[key]
		node, _, _ := strings.Cut(key, "/")
		p := host.Problem{
			What: fmt.Sprintf("node %s, which writes to storage %s, is offline or missing", node, c.storage),
			Fix:  "bring it back, or give its machines another node"}
		if status, exists := nodes[node]; exists && status != offline {
			var shared bool
			p, shared, err = c.client.Hosts().StorageProblem(ctx, node, c.storage, c.content)
			if err != nil {
				return found, err
			}
			if shared && c.sharedKey != "" {
				key = c.sharedKey + strings.TrimPrefix(key, node)
			}
		}
		if p.What != "" {
			found.Unusable = append(found.Unusable, gate.Foreign{What: p.What, Fixes: []string{p.Fix}})
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
		volume := c.storage + ":" + c.content + "/" + file
		if _, exists := volumes[volume]; exists {
			found.Ours = append(found.Ours, gate.Own{Borrowed: true, Import: gate.Import{
				Address: address, ID: node + "/" + volume, What: "image " + volume + " on node " + node}})
		}
	}
	return found, nil
}
