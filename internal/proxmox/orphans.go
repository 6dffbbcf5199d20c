package proxmox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strconv"
)

// Orphan is a disk with an id of the range in its name that no guest uses, such as a leftover of a deleted
// machine.
type Orphan struct {
	Volume  string `json:"volume"`
	Node    string `json:"node"`
	Storage string `json:"storage"`
	Size    int64  `json:"size"`
	ID      int    `json:"vmid"`
	Shared  bool   `json:"shared"`            // another Proxmox cluster may have a machine with that id
	Refused string `json:"refused,omitempty"` // why it must not be deleted
	Chosen  bool   `json:"chosen"`            // the user wants it deleted
	Deleted bool   `json:"deleted"`
}

// Goes reports whether the disk may be deleted.
func (o Orphan) Goes() bool { return o.Chosen && o.Refused == "" }

func (o Orphan) String() string {
	if o.Refused != "" {
		return fmt.Sprintf("disk %s (%s)", o.Volume, o.Refused)
	}
	return "disk " + o.Volume
}

var ownDisk = regexp.MustCompile(`[:/]vm-(\d+)-(?:disk-\d+|cloudinit)(?:\.\w+)?$`)

// Orphans lists the unused disks of a range, and the unreadable nodes and storages. stays returns why a
// guest will keep its id; "" if it goes or does not exist.
func (c *Client) Orphans(
	ctx context.Context, r Range, stays func(id int) string,
) (orphans []Orphan, unread []string, err error) {
	found, unread, err := disksOf(ctx, c, r)
	if err != nil || len(found) == 0 {
		return nil, unread, err
	}
	used, doubt, err := usedVolumes(ctx, c)
	if err != nil {
		return nil, unread, err
	}
	for _, o := range found {
		if used(o.Volume) {
			continue
		}
		if o.Refused = stays(o.ID); o.Refused == "" {
			o.Refused = doubt
		}
		orphans = append(orphans, o)
	}
	return orphans, unread, nil
}

// disksOf lists the disks with ids of a range on all storages of all nodes.
func disksOf(ctx context.Context, c *Client, r Range) (found []Orphan, unread []string, err error) {
	nodes, err := c.Nodes(ctx)
	if err != nil {
		return nil, nil, err
	}
	c.eachDiskStorage(ctx, nodes, func(node string, s Storage) error {
		volumes, err := c.Volumes(ctx, node, s.ID, "images", 0)
		for _, volume := range sortedKeys(volumes) {
			name := ownDisk.FindStringSubmatch(volume)
			if name == nil {
				continue
			}
			if id, err := strconv.Atoi(name[1]); err == nil && r.Contains(id) {
				found = append(found, Orphan{
					Volume: volume, Node: node, Storage: s.ID, Size: volumes[volume], ID: id,
					Shared: s.Shared == 1,
				})
			}
		}
		return err
	}, func(kind, id string, failure error) {
		if failure != errOffline && failure != errInactive {
			err = cmp.Or(err, failure)
		}
		unread = append(unread, fmt.Sprintf("%s %s: %v; its disks are not known", kind, id, failure))
	})
	return found, unread, err
}

// usedVolumes reads the configuration of every guest: any may use a disk that carries another id. doubt
// explains why the answer is not certain.
func usedVolumes(ctx context.Context, c *Client) (used func(volume string) bool, doubt string, err error) {
	has, err := c.rightsOn(ctx, "/vms")
	if err != nil {
		return nil, "", err
	}
	if !has.include("VM.Audit") {
		doubt = "this API token may not see every machine (VM.Audit on /vms), and one may use it"
	}
	listed, err := c.Guests(ctx)
	if err != nil {
		return nil, "", err
	}
	for i, g := range listed {
		if listed[i], err = c.configured(ctx, g); err != nil && KindOf(err) != Missing {
			doubt = fmt.Sprintf("%s cannot be read, and may use it", g)
		}
	}
	return func(volume string) bool {
		return slices.ContainsFunc(listed, func(g Guest) bool { return g.Config.uses(volume) })
	}, doubt, nil
}

// Free deletes a disk that nothing uses and whose id is free, and proves that it is gone. Both are checked
// again before.
func (r *Removal) Free(ctx context.Context, o Orphan) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("disk %s: %w", o.Volume, err)
		}
	}()
	if taken, err := r.Client.Taken(ctx, o.ID); err != nil {
		return err
	} else if taken {
		return fmt.Errorf("VM %d is there; nothing was deleted here", o.ID)
	}
	now, _, err := r.Client.Orphans(ctx, Range{From: o.ID, To: o.ID}, func(int) string { return "" })
	if err != nil {
		return err
	}
	listed := o
	listed.Chosen = false
	if !slices.Contains(now, listed) {
		return errors.New("has changed since the table was made; nothing was deleted here")
	}
	of := Guest{ID: o.ID, Node: o.Node}
	path := storagePath(o.Node, o.Storage) + pathOf("/%s", o.Volume)
	err = r.send(ctx, of, Step{Kind: StepFree, Volumes: []string{o.Volume}}, http.MethodDelete, path)
	if err == nil {
		err = r.until(ctx, "its task has ended, but it is still there", func() (bool, error) {
			volumes, err := r.Client.Volumes(ctx, o.Node, o.Storage, "images", o.ID)
			_, exists := volumes[o.Volume]
			return !exists, err
		})
	}
	if err != nil {
		return err
	}
	return r.note(Step{Kind: StepFreed, Volumes: []string{o.Volume}}, of)
}
