package proxmox

import (
	"context"
	"fmt"
	"net/url"
	"path"
	"strings"
)

// Node is one host of the datacenter.
type Node struct {
	Name   string `json:"node"`
	Status string `json:"status"` // online, offline, unknown
}

// Nodes lists the hosts, whoever asks.
func (c *Client) Nodes(ctx context.Context) ([]Node, error) {
	var all []Node
	err := c.get(ctx, "nodes", &all)
	return all, err
}

// Storage is a storage as one node sees it.
type Storage struct {
	ID      string `json:"storage"`
	Content string `json:"content"` // comma-separated
	Active  int    `json:"active"`
	Shared  int    `json:"shared"`
}

// Storages lists the enabled storages of a node that the token may see.
func (c *Client) Storages(ctx context.Context, node string) ([]Storage, error) {
	var all []Storage
	err := c.get(ctx, fmt.Sprintf("nodes/%s/storage?enabled=1", url.PathEscape(node)), &all)
	return all, err
}

// Volumes lists the ids of a storage's volumes of one content type; those of
// one guest, unless that is 0. What the token may not see is left out: ask
// allowed first.
func (c *Client) Volumes(ctx context.Context, node, storage, content string, guest int) ([]string, error) {
	query := "content=" + url.QueryEscape(content)
	if guest != 0 {
		query += fmt.Sprintf("&vmid=%d", guest)
	}
	var rows []struct {
		ID string `json:"volid"`
	}
	err := c.get(ctx, fmt.Sprintf("nodes/%s/storage/%s/content?%s", url.PathEscape(node), url.PathEscape(storage), query), &rows)
	var ids []string
	for _, row := range rows {
		ids = append(ids, row.ID)
	}
	return ids, err
}

// allowed reports whether the token has every one of the privileges on a path
// such as /storage/local.
func (c *Client) allowed(ctx context.Context, on string, privileges ...string) (bool, error) {
	var all map[string]map[string]int
	if err := c.get(ctx, "access/permissions?path="+url.QueryEscape(on), &all); err != nil {
		return false, err
	}
	for _, p := range privileges {
		if _, has := all[on][p]; !has { // its value says whether it is inherited
			return false, nil
		}
	}
	return true, nil
}

// seesDisks reports whether a storage lists all disks of a guest that is gone.
// A privilege on the guest itself may have gone with it.
func (c *Client) seesDisks(ctx context.Context, storage string, guest int) (bool, error) {
	if all, err := c.allowed(ctx, "/storage/"+storage, "Datastore.Allocate"); all || err != nil {
		return all, err
	}
	if audit, err := c.allowed(ctx, "/storage/"+storage, "Datastore.Audit"); !audit || err != nil {
		return false, err
	}
	return c.allowed(ctx, fmt.Sprintf("/vms/%d", guest), "VM.Config.Disk")
}

// Task is a worker that is running on a node.
type Task struct {
	Kind string `json:"type"` // qmdestroy, imgdel, download
	ID   string `json:"id"`   // the guest, the storage or the file
}

// Running lists the tasks of a node that have not ended, as far as the token may see them.
func (c *Client) Running(ctx context.Context, node string) ([]Task, error) {
	var all []Task
	err := c.get(ctx, fmt.Sprintf("nodes/%s/tasks?source=active", url.PathEscape(node)), &all)
	return all, err
}

// concerns reports whether a task may still remove, or make, what a trace
// stands for. Deletions name only the storage, so they count for what is there.
func (k Task) concerns(t Trace, there bool) bool {
	switch {
	case strings.HasPrefix(k.Kind, "qm"):
		return t.VM != 0 && k.ID == fmt.Sprint(t.VM)
	case k.Kind == "download":
		return t.isFile() && k.ID == path.Base(t.Volume)
	case k.Kind == "imgdel":
		_, storage, found := strings.Cut(k.ID, "@")
		if !found {
			storage = k.ID
		}
		return there && storage == storageOf(t.Volume)
	}
	return false
}
