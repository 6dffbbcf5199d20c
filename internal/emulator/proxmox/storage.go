package proxmox

import (
	"fmt"
	"maps"
	"net/url"
	"path"
	"regexp"
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

// downloadSize is what the far end of every URL claims to have.
const downloadSize = 1 << 30

// AddDisk puts a volume onto a storage, such as a disk that somebody forgot.
func (s *Server) AddDisk(d Disk) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if d.Node == "" {
		d.Node = s.config.Nodes[0]
	}
	s.addVolume(d.Node, &d)
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

func (s *Server) queryURL(c *call) (any, error) {
	where, err := url.Parse(c.get("url"))
	if err != nil || (where.Scheme != "http" && where.Scheme != "https") {
		return nil, badParameter("url", "value does not match the regex pattern\n")
	}
	return map[string]any{"filename": path.Base(where.Path), "size": downloadSize, "mimetype": "application/octet-stream"}, nil
}

var extensions = map[string]*regexp.Regexp{ //nolint:gochecknoglobals // a constant in all but name
	"iso":    regexp.MustCompile(`(?i).\.(iso|img)$`),
	"vztmpl": regexp.MustCompile(`(?i).\.(tar|tar\.(gz|xz|zst|bz2))$`),
	"import": regexp.MustCompile(`^[a-zA-Z0-9_.+-]+\.(ova|qcow2|raw|vmdk)$`),
}

// download is POST …/download-url. Nothing is fetched: the file appears when
// the task is over, and remembers where it would have come from.
func (s *Server) download(c *call) (any, error) {
	st, err := s.storage(c.vars["storage"])
	if err != nil {
		return nil, err
	}
	content, name := c.get("content"), regexp.MustCompile(`[^a-zA-Z0-9_.-]`).ReplaceAllString(path.Base(c.get("filename")), "_")
	switch {
	case st.Type != "dir":
		return nil, internal("can't upload to storage type '%s', not a file based storage!", st.Type)
	case extensions[content] == nil:
		return nil, badParameter("content", fmt.Sprintf("upload content-type '%s' is not allowed", content))
	case !slices.Contains(st.Content, content):
		return nil, internal("storage '%s' is not configured for content-type '%s'", st.ID, content)
	case !extensions[content].MatchString(name):
		if content == "import" {
			return nil, badParameter("filename", "invalid filename or wrong extension")
		}
		return nil, badParameter("filename", "wrong file extension")
	}
	format := strings.TrimPrefix(path.Ext(name), ".")
	if content != "import" {
		format = content
	}
	volume := st.ID + ":" + content + "/" + name
	return s.launch(c, job{node: c.vars["node"], kind: "download", id: name, do: func(*task) error {
		if c.get("compression") != "" && content != "iso" {
			return fmt.Errorf("decompression not supported for %s", content)
		}
		checksum := strings.ToLower(c.get("checksum"))
		if old := s.volumes[volumeKey{c.vars["node"], volume}]; old != nil {
			switch {
			case checksum == "":
				return fmt.Errorf("refusing to override existing file '%s'", st.file(volume))
			case old.Checksum != checksum:
				return fmt.Errorf("checksum mismatch: got '%s' != expect '%s', aborting", old.Checksum, checksum)
			}
			return nil
		}
		s.addVolume(c.vars["node"], &Disk{
			Volume: volume, Size: downloadSize, Format: format, Content: content, Source: c.get("url"), Checksum: checksum,
		})
		return nil
	}}), nil
}

// resize is PUT …/resize; the work is a task.
func (s *Server) resize(c *call) (any, error) {
	m, err := s.guest(c, "VM.Config.Disk")
	if err != nil {
		return nil, err
	}
	if c.get("skiplock") != "" {
		return nil, badParameter("skiplock", "Only root may use this option.")
	}
	if lock := m.options["lock"]; lock != "" {
		return nil, internal("%v", locked(lock))
	}
	key, want := c.get("disk"), c.get("size")
	relative := strings.HasPrefix(want, "+")
	size, ok := parseSize(strings.TrimPrefix(want, "+"))
	volume, _, _ := strings.Cut(m.options[key], ",")
	switch {
	case !ok:
		return nil, badParameter("size", "value does not match the regex pattern\n")
	case volume == "":
		return nil, internal("disk '%s' does not exist", key)
	case strings.Contains(m.options[key], "media=cdrom"):
		return nil, internal("you can't resize a cdrom")
	}
	return s.launch(c, job{node: m.node, kind: "resize", id: strconv.Itoa(m.id), do: func(*task) error {
		d := s.volumes[volumeKey{m.node, volume}]
		if d == nil {
			return fmt.Errorf("Could not determine current size of volume '%s'", volume) //nolint:staticcheck // the real text
		}
		if relative {
			size += d.Size
		}
		if size < d.Size {
			return fmt.Errorf("shrinking disks is not supported")
		}
		d.Size = size
		m.options[key] = setDriveSize(m.options[key], size)
		return nil
	}}), nil
}
