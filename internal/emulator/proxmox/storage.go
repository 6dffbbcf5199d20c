package proxmox

import (
	"cmp"
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
	Checksum string // with which a download was verified
	Stuck    bool   // cannot be freed when its guest is deleted
}

type volumeKey struct{ node, volume string }

// storages keeps the volumes and answers the calls about storages.
type storages struct {
	config  *Config
	tasks   *tasks
	volumes map[volumeKey]*Disk
}

func (s *storages) routes() []route {
	const storage = "nodes/{node}/storage/{storage}"
	return []route{
		{"GET", "nodes/{node}/storage", s.list},
		{"GET", "nodes/{node}/query-url-metadata", queryURL},
		{"GET", storage + "/status", s.on(storageStatus)},
		{"GET", storage + "/content", s.on(s.listContent)},
		{"GET", storage + "/content/{volume...}", s.on(s.show)},
		{"DELETE", storage + "/content/{volume...}", s.on(s.remove)},
		{"POST", storage + "/download-url", s.on(s.download)},
	}
}

func (s *storages) sorted() []*Disk {
	return slices.SortedFunc(maps.Values(s.volumes), func(a, b *Disk) int {
		return strings.Compare(a.Node+" "+a.Volume, b.Node+" "+b.Volume)
	})
}

func (s *storages) add(node string, d *Disk) {
	d.Node = node
	s.volumes[volumeKey{node, d.Volume}] = d
}

func (s *storages) free(node string, volumes ...string) {
	for _, v := range volumes {
		delete(s.volumes, volumeKey{node, v})
	}
}

func (s *storages) byID(id string) (Storage, error) {
	for _, st := range s.config.Storages {
		if st.ID == id {
			return st, nil
		}
	}
	return Storage{}, internal("storage '%s' does not exist", id)
}

// file is the path of a volume.
func (st Storage) file(volume string) string {
	_, name, _ := strings.Cut(volume, ":")
	kind, file, _ := strings.Cut(name, "/")
	folder := map[string]string{
		"iso": "template/iso", "vztmpl": "template/cache", "import": "import", "snippets": "snippets",
	}[kind]
	switch {
	case st.Type != "dir":
		return "/dev/pve/" + name
	case folder == "":
		return path.Join(st.Path, "images", name)
	}
	return path.Join(st.Path, folder, file)
}

// on is a handler for a call about one storage.
func (s *storages) on(handle func(*call, Storage) (any, error)) handler {
	return func(c *call) (any, error) {
		st, err := s.byID(c.vars["storage"])
		if err != nil {
			return nil, err
		}
		return handle(c, st)
	}
}

func storageStatus(_ *call, st Storage) (any, error) {
	row := st.row()
	delete(row, "storage")
	row["total"], row["used"], row["avail"] = 1<<40, 0, 1<<40
	return row, nil
}

func (s *storages) list(c *call) (any, error) {
	rows := []any{}
	for _, st := range s.config.Storages {
		if want := c.get("content"); want == "" || slices.Contains(st.Content, want) {
			rows = append(rows, st.row())
		}
	}
	return rows, nil
}

func (st Storage) row() map[string]any {
	return map[string]any{
		"storage": st.ID, "type": st.Type, "content": strings.Join(st.Content, ","),
		"active": 1, "enabled": 1, "shared": 0,
	}
}

func (d *Disk) row() map[string]any {
	row := map[string]any{"volid": d.Volume, "content": d.Content, "format": d.Format, "size": d.Size}
	if d.Owner != 0 {
		row["vmid"] = d.Owner
	}
	return row
}

func (s *storages) listContent(c *call, st Storage) (any, error) {
	rows := []any{}
	for _, d := range s.sorted() {
		content, vmid := cmp.Or(c.get("content"), d.Content), cmp.Or(c.get("vmid"), strconv.Itoa(d.Owner))
		if d.Node == c.vars["node"] && strings.HasPrefix(d.Volume, st.ID+":") &&
			content == d.Content && vmid == strconv.Itoa(d.Owner) {
			rows = append(rows, d.row())
		}
	}
	return rows, nil
}

// volume finds the volume of a call, whose id may lack the storage.
func (s *storages) volume(c *call, st Storage) (*Disk, error) {
	name := strings.TrimPrefix(c.vars["volume"], st.ID+":")
	d := s.volumes[volumeKey{c.vars["node"], st.ID + ":" + name}]
	switch {
	case d == nil && st.Type != "dir":
		return nil, internal("no such logical volume pve/%s", name)
	case d == nil:
		return nil, internal("volume_size_info on '%s:%s' failed - no format", st.ID, name)
	}
	return d, nil
}

func (s *storages) show(c *call, st Storage) (any, error) {
	d, err := s.volume(c, st)
	if err != nil {
		return nil, err
	}
	return map[string]any{"path": st.file(d.Volume), "size": d.Size, "used": d.Size, "format": d.Format}, nil
}

// remove deletes a volume. For a file that does not exist the task succeeds, with
// a warning in its log.
func (s *storages) remove(c *call, st Storage) (any, error) {
	d, err := s.volume(c, st)
	if err != nil && st.Type != "dir" {
		return nil, err
	}
	return s.tasks.launch(c, job{node: c.vars["node"], kind: "imgdel", id: st.ID, do: func(t *task) error {
		if d == nil {
			t.warn("disk image '%s' does not exist", c.vars["volume"])
			return nil
		}
		s.free(d.Node, d.Volume)
		return nil
	}}), nil
}

// downloadSize is the reported size of every URL.
const downloadSize = 1 << 30

func queryURL(c *call) (any, error) {
	where, err := url.Parse(c.get("url"))
	if err != nil || (where.Scheme != "http" && where.Scheme != "https") {
		return nil, badParameter("url", "value does not match the regex pattern\n")
	}
	return map[string]any{
		"filename": path.Base(where.Path), "size": downloadSize, "mimetype": "application/octet-stream",
	}, nil
}

var (
	isoName    = regexp.MustCompile(`(?i).\.(iso|img)$`)
	vztmplName = regexp.MustCompile(`(?i).\.(tar|tar\.(gz|xz|zst|bz2))$`)
	importName = regexp.MustCompile(`^[a-zA-Z0-9_.+-]+\.(ova|qcow2|raw|vmdk)$`)
	unsafeName = regexp.MustCompile(`[^a-zA-Z0-9_.-]`)
)

// checkName validates the name of a file to download.
func checkName(content, name string) error {
	ok, text := true, "wrong file extension"
	switch content {
	case "iso":
		ok = isoName.MatchString(name)
	case "vztmpl":
		ok = vztmplName.MatchString(name)
	case "import":
		ok, text = importName.MatchString(name), "invalid filename or wrong extension"
	default:
		return badParameter("content", fmt.Sprintf("upload content-type '%s' is not allowed", content))
	}
	if !ok {
		return badParameter("filename", text)
	}
	return nil
}

// download handles POST …/download-url. It fetches nothing: the file appears when
// the task is over, with its URL.
func (s *storages) download(c *call, st Storage) (any, error) {
	content, name := c.get("content"), unsafeName.ReplaceAllString(path.Base(c.get("filename")), "_")
	switch {
	case st.Type != "dir":
		return nil, internal("can't upload to storage type '%s', not a file based storage!", st.Type)
	case !slices.Contains(st.Content, content):
		return nil, internal("storage '%s' is not configured for content-type '%s'", st.ID, content)
	}
	if err := checkName(content, name); err != nil {
		return nil, err
	}
	format := strings.TrimPrefix(path.Ext(name), ".")
	if content != "import" {
		format = content
	}
	volume := st.ID + ":" + content + "/" + name
	node := c.vars["node"]
	return s.tasks.launch(c, job{node: node, kind: "download", id: name, do: func(*task) error {
		if c.get("compression") != "" && content != "iso" {
			return fmt.Errorf("decompression not supported for %s", content)
		}
		checksum := strings.ToLower(c.get("checksum"))
		if old := s.volumes[volumeKey{node, volume}]; old != nil {
			switch {
			case checksum == "":
				return fmt.Errorf("refusing to override existing file '%s'", st.file(volume))
			case old.Checksum != checksum:
				return fmt.Errorf("checksum mismatch: got '%s' != expect '%s', aborting", old.Checksum,
					checksum)
			}
			return nil
		}
		s.add(node, &Disk{
			Volume: volume, Size: downloadSize, Format: format, Content: content,
			Source: c.get("url"), Checksum: checksum,
		})
		return nil
	}}), nil
}
