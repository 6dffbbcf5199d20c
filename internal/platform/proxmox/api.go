package proxmox

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/siderolabs/gen/xslices"

	"github.com/ephemeral-castle/castle/internal/httpjson"
	"github.com/ephemeral-castle/castle/internal/platform"
	"github.com/ephemeral-castle/castle/internal/platform/proxmox/host"
	"github.com/ephemeral-castle/castle/internal/platform/proxmox/session"
	"github.com/ephemeral-castle/castle/internal/platform/proxmox/values"
)

// Admitted returns an error unless the datacenter accepts the token.
func (c *Client) Admitted(ctx context.Context) error {
	_, err := get(ctx, c, "version", func(v struct{ Version string }) string {
		return textIf(v.Version == "", "no version")
	})
	return err
}

// textIf returns text if a condition holds, else "".
func textIf(holds bool, text string) string {
	if holds {
		return text
	}
	return ""
}

// Clock returns the datacenter's time with a second's accuracy; zero if its answer has none.
func (c *Client) Clock(ctx context.Context) (time.Time, error) {
	date := ""
	err := httpjson.Repeat(ctx, func(ctx context.Context) (err error) {
		date, err = c.session.Call(ctx, http.MethodGet, "version", nil)
		return err
	})
	if err != nil && !errors.As(err, new(*Error)) {
		return time.Time{}, err
	}
	at, _ := http.ParseTime(date) //nolint:errcheck // then it is zero
	return at, nil
}

// TokenExpiry returns when the session's token expires, zero: never, and the command that changes it. Only a
// token that may change users may read that, though it be its own.
func (c *Client) TokenExpiry(ctx context.Context) (expires time.Time, fix string, err error) {
	user, name, _ := strings.Cut(c.session.User, "!")
	fix = fmt.Sprintf("on a node: pveum user token modify %s %s --expire SECONDS-SINCE-1970", user, name)
	info, err := get(ctx, c, session.Path("access/users/%s/token/%s", user, name),
		func(info *struct{ Expire json.Number }) string { return textIf(info == nil, "no token") })
	switch {
	case KindOf(err) == Forbidden:
		return expires, fix, errors.New("the token may not read its own expiry, which needs User.Modify; " +
			"on a node: pveum user token list " + user)
	case err != nil:
		return expires, fix, err
	}
	if seconds, _ := info.Expire.Int64(); seconds != 0 { //nolint:errcheck // absent: never
		expires = time.Unix(seconds, 0)
	}
	return expires, fix, nil
}

// Guests lists the guests that the token may see. One that is not listed may exist all the same: see Taken.
func (c *Client) Guests(ctx context.Context) ([]Guest, error) {
	return list[Guest](ctx, c, "cluster/resources?type=vm")
}

// Taken reports whether any guest has this id, visible to the token or not, containers included.
func (c *Client) Taken(ctx context.Context, id int) (bool, error) {
	_, err := get(ctx, c, fmt.Sprintf("cluster/nextid?vmid=%d", id), func(free json.Number) string {
		return textIf(string(free) != strconv.Itoa(id), fmt.Sprintf("id %s, not %d", free, id))
	})
	if KindOf(err) == Taken {
		return true, nil
	}
	return false, err
}

const offline = "offline"

// Nodes returns the hosts' statuses (online, offline, unknown), by name; this needs no privilege.
func (c *Client) Nodes(ctx context.Context) (map[string]string, error) {
	rows, err := get(ctx, c, "nodes", func(rows []nodeRow) string { // one of them has answered
		return cmp.Or(session.Incomplete(rows), textIf(len(rows) == 0, "there is no node"))
	})
	return xslices.ToMap(rows, func(h nodeRow) (string, string) { return h.Name, h.Status }), err
}

type nodeRow struct {
	Name   string `json:"node"`
	Status string `json:"status"`
}

func (h nodeRow) Key() string { return textIf(h.Status != "", h.Name) }

// Hosts reads what the nodes offer to machines.
func (c *Client) Hosts() host.Hosts { return host.Hosts{Session: c.session} }

// A storage that is not read, because of one of these, is not an error of a request.
var (
	errOffline  = errors.New("it is offline")
	errInactive = errors.New("it is not active")
)

// eachDiskStorage calls read for each storage of the nodes that may hold disks; for a shared one only until
// it succeeds. skip receives the nodes and storages that cannot be read.
func (c *Client) eachDiskStorage(ctx context.Context, nodes map[string]string,
	read func(node string, s host.Storage) error, skip func(kind, id string, err error)) {
	done := map[string]bool{}
	for _, node := range sortedKeys(nodes) {
		var storages []host.Storage
		err := errOffline
		if nodes[node] != offline {
			storages, err = c.Hosts().Storages(ctx, node)
		}
		if err != nil {
			skip("node", node, err)
		}
		for _, s := range storages {
			if done[s.ID] || !s.Holds("images") {
				continue
			}
			err := errInactive
			if s.Active != 0 {
				err = read(node, s)
			}
			if err != nil {
				skip("storage", s.ID+" on node "+node, err)
			}
			done[s.ID] = s.Shared == 1 && err == nil
		}
	}
}

// Volumes returns the sizes of a storage's volumes of one content type, by id; those of one guest, unless
// that is 0. Volumes that the token may not see are left out: see seesDisks.
func (c *Client) Volumes(ctx context.Context, node, storage, content string, guest int) (map[string]int64,
	error) {
	query := url.Values{"content": {content}}
	if guest != 0 {
		query.Set("vmid", strconv.Itoa(guest))
	}
	rows, err := list[volumeRow](ctx, c, storagePath(node, storage)+"?"+query.Encode())
	return xslices.ToMap(rows, func(v volumeRow) (string, int64) { return v.ID, int64(v.Size) }), err
}

type volumeRow struct {
	ID   string  `json:"volid"`
	Size float64 `json:"size"`
}

func (v volumeRow) Key() string { return textIf(strings.Contains(v.ID, ":"), v.ID) }

func storagePath(node, storage string) string {
	return session.Path("nodes/%s/storage/%s/content", node, storage)
}

// Fetchable returns an error unless a node can fetch a URL; nothing is fetched.
func (c *Client) Fetchable(ctx context.Context, node, address string) error {
	query := url.Values{"url": {address}}
	anything := func(map[string]any) string { return "" }
	_, err := get(ctx, c, session.Path("nodes/%s/query-url-metadata?", node)+query.Encode(), anything)
	return err
}

// task is a worker on a node.
type task struct {
	UPID   string `json:"upid"`
	Kind   string `json:"type"`   // qmdestroy, imgdel, download
	ID     string `json:"id"`     // the guest, the storage or the file
	Status string `json:"status"` // how it has ended: OK, WARNINGS: 1, or an error
}

func (k task) Key() string { return textIf(k.Kind != "", k.UPID) }

// running lists the tasks of a node, or of one guest, that have not ended and that the token may see.
func (c *Client) running(ctx context.Context, node string, guest int) ([]task, error) {
	path := session.Path("nodes/%s/tasks?source=active", node)
	if guest != 0 {
		path += fmt.Sprintf("&vmid=%d", guest)
	}
	return list[task](ctx, c, path)
}

// concerns reports whether a task may still remove, or make, an object. Deletions name only the storage, so
// they count for objects that exist.
func (k task) concerns(o platform.Object, exists bool) bool {
	switch {
	case strings.HasPrefix(k.Kind, "qm"):
		return o.VM != 0 && k.ID == strconv.Itoa(o.VM)
	case k.Kind == "download":
		return o.IsFile() && k.ID == path.Base(o.Volume)
	case k.Kind == "imgdel": // 421@local-lvm, or local-lvm
		return exists && strings.HasSuffix("@"+k.ID, "@"+values.StorageOf(o.Volume))
	}
	return false
}
