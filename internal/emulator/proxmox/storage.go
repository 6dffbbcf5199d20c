package proxmox

import (
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
)

// Disk is a volume on a storage: a guest's disk, or a file such as an image.
type Disk struct {
	Volume  string // local-lvm:vm-421-disk-0, local:import/talos.qcow2
	Node    string
	Owner   int // the guest's id; 0 for a file
	Size    int64
	Format  string
	Content string // images, import, iso, …
	// Source is the URL of a downloaded file, or the volume that a disk was
	// imported from.
	Source   string
	Checksum string // what a download was verified against
	Stuck    bool   // cannot be freed when its guest is destroyed
}

type volumeKey struct{ node, volume string }

// AddDisk puts a volume onto a storage, such as a disk that somebody forgot.
func (s *Server) AddDisk(d Disk) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if d.Node == "" {
		d.Node = s.config.Nodes[0]
	}
	s.addVolume(d.Node, &d)
}

// RemoveDisk takes a volume off its storage, as somebody at the node would.
func (s *Server) RemoveDisk(node, volume string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.free(node, volume)
}

// Disks lists every volume, by node and name.
func (s *Server) Disks() []Disk {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := []Disk{}
	for _, d := range s.sorted() {
		all = append(all, *d)
	}
	return all
}

func (s *Server) sorted() []*Disk {
	return slices.SortedFunc(maps.Values(s.volumes), func(a, b *Disk) int {
		return strings.Compare(a.Node+" "+a.Volume, b.Node+" "+b.Volume)
	})
}

func (s *Server) addVolume(node string, d *Disk) {
	d.Node = node
	s.volumes[volumeKey{node, d.Volume}] = d
}

func (s *Server) free(node string, volumes ...string) {
	for _, v := range volumes {
		delete(s.volumes, volumeKey{node, v})
	}
}

func (s *Server) storage(id string) (Storage, error) {
	for _, st := range s.config.Storages {
		if st.ID == id {
			return st, nil
		}
	}
	return Storage{}, internal("storage '%s' does not exist", id)
}

// file is where a volume of a dir storage lies.
func (st Storage) file(volume string) string {
	_, name, _ := strings.Cut(volume, ":")
	kind, rest, ok := strings.Cut(name, "/")
	switch {
	case st.Type != "dir":
		return "/dev/pve/" + name
	case !ok:
		return path.Join(st.Path, "images", name)
	case kind == "iso":
		return path.Join(st.Path, "template/iso", rest)
	case kind == "vztmpl":
		return path.Join(st.Path, "template/cache", rest)
	case kind == "import" || kind == "snippets":
		return path.Join(st.Path, kind, rest)
	}
	return path.Join(st.Path, "images", name)
}

func (s *Server) storageStatus(c *call) (any, error) {
	st, err := s.storage(c.vars["storage"])
	if err != nil {
		return nil, err
	}
	const total = 1 << 40
	return map[string]any{
		"type": st.Type, "content": strings.Join(st.Content, ","), "active": 1, "enabled": 1, "shared": 0, "total": total, "used": 0, "avail": total,
	}, nil
}

// listStorages is GET nodes/{node}/storage.
func (s *Server) listStorages(c *call) (any, error) {
	rows := []any{}
	for _, st := range s.config.Storages {
		if want := c.get("content"); want == "" || slices.Contains(st.Content, want) {
			rows = append(rows, map[string]any{
				"storage": st.ID, "type": st.Type, "content": strings.Join(st.Content, ","), "active": 1, "enabled": 1, "shared": 0,
			})
		}
	}
	return rows, nil
}

func (d *Disk) row() map[string]any {
	row := map[string]any{"volid": d.Volume, "content": d.Content, "format": d.Format, "size": d.Size}
	if d.Owner != 0 {
		row["vmid"] = d.Owner
	}
	return row
}

func (s *Server) listContent(c *call) (any, error) {
	st, err := s.storage(c.vars["storage"])
	if err != nil {
		return nil, err
	}
	rows := []any{}
	for _, d := range s.sorted() {
		wanted := (c.get("content") == "" || c.get("content") == d.Content) && (c.get("vmid") == "" || c.get("vmid") == strconv.Itoa(d.Owner))
		if d.Node == c.vars["node"] && strings.HasPrefix(d.Volume, st.ID+":") && wanted {
			rows = append(rows, d.row())
		}
	}
	return rows, nil
}

// volume finds the volume of a call; its id may come without the storage.
func (s *Server) volume(c *call) (Storage, *Disk, error) {
	st, err := s.storage(c.vars["storage"])
	if err != nil {
		return st, nil, err
	}
	id := c.vars["volume"]
	if !strings.HasPrefix(id, st.ID+":") {
		id = st.ID + ":" + id
	}
	d := s.volumes[volumeKey{c.vars["node"], id}]
	if d == nil && st.Type != "dir" {
		return st, nil, internal("no such logical volume pve/%s", strings.TrimPrefix(id, st.ID+":"))
	}
	if d == nil {
		return st, nil, internal("volume_size_info on '%s' failed - no format", id)
	}
	return st, d, nil
}

func (s *Server) showVolume(c *call) (any, error) {
	st, d, err := s.volume(c)
	if err != nil {
		return nil, err
	}
	return map[string]any{"path": st.file(d.Volume), "size": d.Size, "used": d.Size, "format": d.Format}, nil
}

// deleteVolume frees a volume. Freeing a file that is gone succeeds, with a
// warning in the task's log.
func (s *Server) deleteVolume(c *call) (any, error) {
	st, d, err := s.volume(c)
	if err != nil && st.Type != "dir" {
		return nil, err
	}
	return s.launch(c, job{node: c.vars["node"], kind: "imgdel", id: st.ID, do: func(t *task) error {
		if d == nil {
			t.warn("disk image '%s' does not exist", c.vars["volume"])
			return nil
		}
		s.free(d.Node, d.Volume)
		return nil
	}}), nil
}
