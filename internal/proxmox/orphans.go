package proxmox

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Orphan is a disk that carries the id of a range in its name and that no guest
// uses: what a machine that was deleted has left, as a rule.
type Orphan struct {
	Volume  string `json:"volume"`
	Node    string `json:"node"`
	Storage string `json:"storage"`
	Size    int64  `json:"size"`
	ID      int    `json:"vmid"`
	Shared  bool   `json:"shared"`            // another Proxmox cluster may have a machine with that id
	Refused string `json:"refused,omitempty"` // why it must not be deleted
}

var ownDisk = regexp.MustCompile(`[:/]vm-(\d+)-(?:disk-\d+|cloudinit)(?:\.\w+)?$`)

// Orphans lists the unused disks of a range, and what could not be looked at.
// stays says why a guest will keep its id; "" if it goes or there is none.
func (c *Client) Orphans(ctx context.Context, r Range, stays func(id int) string) (orphans []Orphan, unseen []string, err error) {
	found, unseen, err := c.disks(ctx, r)
	if err != nil || len(found) == 0 {
		return nil, unseen, err
	}
	used, doubt, err := c.uses(ctx)
	if err != nil {
		return nil, unseen, err
	}
	for _, o := range found {
		switch {
		case used(o.Volume):
			continue
		case stays(o.ID) != "":
			o.Refused = stays(o.ID)
		default:
			o.Refused = doubt
		}
		orphans = append(orphans, o)
	}
	return orphans, unseen, nil
}

// disks lists the disks with ids of a range on all storages of all nodes.
func (c *Client) disks(ctx context.Context, r Range) (found []Orphan, unseen []string, err error) {
	nodes, err := c.Nodes(ctx)
	if err != nil {
		return nil, nil, err
	}
	shared := map[string]bool{}
	for _, node := range nodes {
		if node.Status == offline {
			unseen = append(unseen, "node "+node.Name+" is offline; which disks are there is not known")
			continue
		}
		storages, err := c.Storages(ctx, node.Name)
		if err != nil {
			return nil, nil, err
		}
		for _, s := range storages {
			if shared[s.ID] || !slices.Contains(strings.Split(s.Content, ","), "images") {
				continue
			}
			if s.Active == 0 {
				unseen = append(unseen, "storage "+s.ID+" on node "+node.Name+" is not active; which disks are there is not known")
				continue
			}
			shared[s.ID] = s.Shared == 1
			all, err := c.disksOn(ctx, node.Name, s, r)
			if err != nil {
				return nil, nil, err
			}
			found = append(found, all...)
		}
	}
	return found, unseen, nil
}

func (c *Client) disksOn(ctx context.Context, node string, s Storage, r Range) (found []Orphan, err error) {
	var rows []struct {
		ID   string  `json:"volid"`
		Size float64 `json:"size"`
	}
	if err := c.get(ctx, storagePath(node, s.ID)+"?content=images", &rows); err != nil {
		return nil, err
	}
	for _, row := range rows {
		name := ownDisk.FindStringSubmatch(row.ID)
		if name == nil {
			continue
		}
		if id, err := strconv.Atoi(name[1]); err == nil && r.Contains(id) {
			found = append(found, Orphan{Volume: row.ID, Node: node, Storage: s.ID, Size: int64(row.Size), ID: id, Shared: s.Shared == 1})
		}
	}
	return found, nil
}

func storagePath(node, storage string) string {
	return fmt.Sprintf("nodes/%s/storage/%s/content", url.PathEscape(node), url.PathEscape(storage))
}

// uses reads the configuration of every guest, any of which may use a disk that
// carries another's id. doubt says why that cannot be told for sure.
func (c *Client) uses(ctx context.Context) (used func(volume string) bool, doubt string, err error) {
	if all, err := c.allowed(ctx, "/vms", "VM.Audit"); err != nil {
		return nil, "", err
	} else if !all {
		doubt = "this API token may not see every machine (VM.Audit on /vms), and one may use it"
	}
	listed, err := c.Guests(ctx)
	if err != nil {
		return nil, "", err
	}
	var configs []Config
	for _, g := range listed {
		var config Config
		if err := c.get(ctx, guestPath(g)+"/config", &config); err != nil && !IsMissing(err) {
			doubt = fmt.Sprintf("%s cannot be read, and may use it", g.seen())
		}
		configs = append(configs, config)
	}
	return func(volume string) bool {
		return slices.ContainsFunc(configs, func(config Config) bool { return config.uses(volume) })
	}, doubt, nil
}

// Free deletes a disk that nothing uses and whose id is free, and proves that it
// is gone. Both are asked anew before.
func (r *Removal) Free(ctx context.Context, o Orphan) error {
	if err := r.free(ctx, o); err != nil {
		return fmt.Errorf("disk %s: %w", o.Volume, err)
	}
	return nil
}

func (r *Removal) free(ctx context.Context, o Orphan) error {
	if taken, err := r.Client.Taken(ctx, o.ID); err != nil {
		return err
	} else if taken {
		return fmt.Errorf("VM %d is there; nothing was deleted here", o.ID)
	}
	now, _, err := r.Client.Orphans(ctx, Range{From: o.ID, To: o.ID}, func(int) string { return "" })
	if err != nil {
		return err
	}
	if i := slices.Index(now, o); i < 0 {
		return fmt.Errorf("is not what it was when the table was made; nothing was deleted here")
	}
	of := Subject{Guest: Guest{ID: o.ID, Node: o.Node}}
	if err := r.note(Step{Kind: StepFree, Volumes: []string{o.Volume}}, of); err != nil {
		return err
	}
	var task string
	path := storagePath(o.Node, o.Storage)
	if err := r.Client.call(ctx, http.MethodDelete, path+"/"+url.PathEscape(o.Volume), &task); err != nil {
		return err
	}
	if task != "" {
		if err := r.finish(ctx, task); err != nil {
			return err
		}
	}
	err = r.until(ctx, "its task has ended, but it is still there", func() (bool, error) {
		left, err := r.Client.Volumes(ctx, o.Node, o.Storage, "images", o.ID)
		return !slices.Contains(left, o.Volume), err
	})
	if err != nil {
		return err
	}
	return r.note(Step{Kind: StepFreed, Volumes: []string{o.Volume}}, of)
}
