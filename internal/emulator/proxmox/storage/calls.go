package storage

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/ephemeral-castle/castle/internal/emulator/proxmox/failure"
	"github.com/ephemeral-castle/castle/internal/emulator/proxmox/option"
	"github.com/ephemeral-castle/castle/internal/emulator/proxmox/rpc"
)

// Routes has the calls about storages and their volumes.
func (all *Volumes) Routes() map[string]rpc.Handler {
	const (
		storage = "nodes/{node}/storage/{storage}"
		visible = "Datastore.Audit|Datastore.AllocateSpace" // each is enough for a part of a call
	)
	return map[string]rpc.Handler{
		"GET nodes/{node}/storage":                   all.listStorages,
		"GET nodes/{node}/query-url-metadata":        all.queryURL,
		"GET " + storage + "/status":                 all.onStorage(visible, showStorage),
		"GET " + storage + "/content":                all.onStorage(visible, all.listContent),
		"GET " + storage + "/content/{volume...}":    all.onStorage("", all.showVolume),
		"DELETE " + storage + "/content/{volume...}": all.onStorage("Datastore.Allocate", all.removeVolume),
		"POST " + storage + "/download-url": all.onStorage("Datastore.AllocateTemplate",
			all.download),
	}
}

// onStorage is a handler for a call about one storage that needs a privilege, one of several with | between
// them; none, if it is empty.
func (all *Volumes) onStorage(privilege string, handle func(*rpc.Call, Storage) (any, error)) rpc.Handler {
	return func(c *rpc.Call) (any, error) {
		path := "/storage/" + c.Get("storage")
		if err := c.Caller.CheckAny(path, strings.Split(privilege, "|")...); privilege != "" && err != nil {
			return nil, err
		}
		st, err := all.Storage(c.Get("storage"))
		if err != nil {
			return nil, err
		}
		return handle(c, st)
	}
}

func showStorage(_ *rpc.Call, st Storage) (any, error) {
	return map[string]any{"type": st.Type, "content": strings.Join(st.Content, ","),
		"shared": option.Number(st.Shared), "enabled": 1, "active": 1, "total": 2 << 40, "used": 1 << 40,
		"avail": 1 << 40}, nil
}

func (all *Volumes) listStorages(c *rpc.Call) (any, error) {
	rows, want := []any{}, c.Get("content")
	for _, st := range all.storages {
		if c.Caller.CheckAny("/storage/"+st.ID, "Datastore.Audit", "Datastore.AllocateSpace") == nil &&
			(want == "" || slices.Contains(st.Content, want)) {
			rows = append(rows, map[string]any{
				"storage": st.ID, "type": st.Type, "content": strings.Join(st.Content, ","),
				"active": 1, "enabled": 1, "shared": option.Number(st.Shared),
				"total": 1 << 40, "used": 1 << 38, "avail": 3 << 38, "used_fraction": 0.25,
			})
		}
	}
	return rows, nil
}

func (all *Volumes) listContent(c *rpc.Call, st Storage) (any, error) {
	rows := []any{}
	for _, d := range all.Sorted() {
		owner := strconv.Itoa(d.Owner)
		if all.Get(c.Get("node"), d.Volume) != d || !strings.HasPrefix(d.Volume, st.ID+":") ||
			cmp.Or(c.Get("content"), d.Content) != d.Content || cmp.Or(c.Get("vmid"), owner) != owner ||
			CheckAccess(c.Caller, 0, d.Volume, d.Content) != nil {
			continue
		}
		row := map[string]any{"volid": d.Volume, "content": d.Content, "format": d.Format, "size": d.Size}
		if d.Owner != 0 {
			row["vmid"] = d.Owner
		}
		rows = append(rows, row)
	}
	return rows, nil
}

// volume finds the volume of a call, whose id may lack the storage.
func (all *Volumes) volume(c *rpc.Call, st Storage) (*Disk, error) {
	name := strings.TrimPrefix(c.Get("volume"), st.ID+":")
	d := all.Get(c.Get("node"), st.ID+":"+name)
	switch {
	case d == nil && !st.HoldsFiles():
		return nil, failure.Internal("no such logical volume pve/%s", name)
	case d == nil:
		return nil, failure.Internal("volume_size_info on '%s:%s' failed - no format", st.ID, name)
	}
	return d, nil
}

func (all *Volumes) showVolume(c *rpc.Call, st Storage) (any, error) {
	volume := st.ID + ":" + strings.TrimPrefix(c.Get("volume"), st.ID+":")
	if err := CheckAccess(c.Caller, 0, volume, ContentOf(volume)); err != nil {
		return nil, err
	}
	d, err := all.volume(c, st)
	if err != nil {
		return nil, err
	}
	return map[string]any{"path": st.file(d.Volume), "size": d.Size, "used": d.Size, "format": d.Format}, nil
}

// removeVolume deletes a volume. For a file that does not exist the task succeeds, with a warning in its log.
func (all *Volumes) removeVolume(c *rpc.Call, st Storage) (any, error) {
	d, err := all.volume(c, st)
	if err != nil && !st.HoldsFiles() {
		return nil, err
	}
	return c.Launch("imgdel", st.ID, func(t *rpc.Task) error {
		if err != nil {
			t.Warn("disk image '%s' does not exist", c.Get("volume"))
			return nil
		}
		all.Free(d.Node, d.Volume)
		return nil
	}).UPID, nil
}
