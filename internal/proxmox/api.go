package proxmox

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Admitted returns an error unless the datacenter accepts the token.
func (c *Client) Admitted(ctx context.Context) error {
	_, err := get[any](ctx, c, "version")
	return err
}

// Clock returns the datacenter's time with a second's accuracy; zero if its answer has none.
func (c *Client) Clock(ctx context.Context) (time.Time, error) {
	date, err := c.call(ctx, http.MethodGet, "version", nil)
	if err != nil && !errors.As(err, new(*Error)) {
		return time.Time{}, err
	}
	at, _ := http.ParseTime(date) //nolint:errcheck // then it is zero
	return at, nil
}

// Guests lists the guests that the token may see. One that is not listed may exist all the same: see Taken.
func (c *Client) Guests(ctx context.Context) ([]Guest, error) {
	return get[[]Guest](ctx, c, "cluster/resources?type=vm")
}

// Taken reports whether any guest has this id, visible to the token or not, containers included.
func (c *Client) Taken(ctx context.Context, id int) (bool, error) {
	_, err := get[any](ctx, c, fmt.Sprintf("cluster/nextid?vmid=%d", id))
	if KindOf(err) == Taken {
		return true, nil
	}
	return false, err
}

// Node is one host of the datacenter.
type Node struct {
	Name   string `json:"node"`
	Status string `json:"status"` // online, offline, unknown
}

const offline = "offline"

// Nodes lists the hosts; this needs no privilege.
func (c *Client) Nodes(ctx context.Context) ([]Node, error) { return get[[]Node](ctx, c, "nodes") }

// Storage is a storage as one node sees it.
type Storage struct {
	ID      string `json:"storage"`
	Content string `json:"content"` // comma-separated
	Active  int    `json:"active"`
	Shared  int    `json:"shared"`
}

// Holds reports whether the storage may have content of a type.
func (s Storage) Holds(content string) bool {
	return slices.Contains(strings.Split(s.Content, ","), content)
}

// Storages lists the enabled storages of a node that the token may see.
func (c *Client) Storages(ctx context.Context, node string) ([]Storage, error) {
	return get[[]Storage](ctx, c, pathOf("nodes/%s/storage?enabled=1", node))
}

// A storage that is not read, because of one of these, is not an error of a request.
var (
	errOffline  = errors.New("it is offline")
	errInactive = errors.New("it is not active")
)

// eachDiskStorage calls read for each storage of the nodes that may hold disks; for a shared one only until
// it succeeds. skip receives the nodes and storages that cannot be read.
func (c *Client) eachDiskStorage(ctx context.Context, nodes []Node, read func(node string, s Storage) error,
	skip func(kind, id string, err error)) {
	done := map[string]bool{}
	for _, node := range nodes {
		var storages []Storage
		err := errOffline
		if node.Status != offline {
			storages, err = c.Storages(ctx, node.Name)
		}
		if err != nil {
			skip("node", node.Name, err)
		}
		for _, s := range storages {
			if done[s.ID] || !s.Holds("images") {
				continue
			}
			err := errInactive
			if s.Active != 0 {
				err = read(node.Name, s)
			}
			if err != nil {
				skip("storage", s.ID+" on node "+node.Name, err)
			}
			done[s.ID] = s.Shared == 1 && err == nil
		}
	}
}

// Volumes returns the sizes of a storage's volumes of one content type, by id; those of one guest, unless
// that is 0. Volumes that the token may not see are left out: see seesDisks.
func (c *Client) Volumes(
	ctx context.Context, node, storage, content string, guest int,
) (map[string]int64, error) {
	query := url.Values{"content": {content}}
	if guest != 0 {
		query.Set("vmid", strconv.Itoa(guest))
	}
	rows, err := get[[]struct {
		ID   string  `json:"volid"`
		Size float64 `json:"size"`
	}](ctx, c, storagePath(node, storage)+"?"+query.Encode())
	all := map[string]int64{}
	for _, row := range rows {
		all[row.ID] = int64(row.Size)
	}
	return all, err
}

func storagePath(node, storage string) string {
	return pathOf("nodes/%s/storage/%s/content", node, storage)
}

// Fetchable returns an error unless a node can fetch a URL; nothing is fetched.
func (c *Client) Fetchable(ctx context.Context, node, address string) error {
	query := url.Values{"url": {address}}
	_, err := get[any](ctx, c, pathOf("nodes/%s/query-url-metadata?", node)+query.Encode())
	return err
}

// task is a worker that is running on a node.
type task struct {
	Kind string `json:"type"` // qmdestroy, imgdel, download
	ID   string `json:"id"`   // the guest, the storage or the file
}

// running lists the tasks of a node that have not ended and that the token may see; those of one guest,
// unless that is 0.
func (c *Client) running(ctx context.Context, node string, guest int) ([]task, error) {
	path := pathOf("nodes/%s/tasks?source=active", node)
	if guest != 0 {
		path += fmt.Sprintf("&vmid=%d", guest)
	}
	return get[[]task](ctx, c, path)
}

// concerns reports whether a task may still remove, or make, an object. Deletions name only the storage, so
// they count for objects that exist.
func (k task) concerns(o Owned, exists bool) bool {
	switch {
	case strings.HasPrefix(k.Kind, "qm"):
		return o.VM != 0 && k.ID == strconv.Itoa(o.VM)
	case k.Kind == "download":
		return o.isFile() && k.ID == path.Base(o.Volume)
	case k.Kind == "imgdel":
		return exists && strings.HasSuffix("@"+k.ID, "@"+storageOf(o.Volume)) // 421@local-lvm, or local-lvm
	}
	return false
}
