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
	// Source is the URL of a downloaded file, or the volume that a disk was imported from.
	Source   string
	Checksum string // with which a download was verified
	Stuck    bool   // cannot be freed when its guest is deleted

	config map[string]string // of the guest in a backup
}

type volumeKey struct{ node, volume string }

// disks are the volumes of all nodes. One on a shared storage is the same on every node.
type disks struct {
	all    map[volumeKey]*Disk
	shared map[string]bool // storages
}

func (all disks) isShared(volume string) bool {
	storage, _, _ := strings.Cut(volume, ":")
	return all.shared[storage]
}

func (all disks) key(node, volume string) volumeKey {
	if all.isShared(volume) {
		node = ""
	}
	return volumeKey{node, volume}
}

func (all disks) get(node, volume string) *Disk { return all.all[all.key(node, volume)] }

func (all disks) sorted() []*Disk {
	return slices.SortedFunc(maps.Values(all.all), func(a, b *Disk) int {
		return strings.Compare(a.Node+" "+a.Volume, b.Node+" "+b.Volume)
	})
}

func (all disks) store(node string, d Disk) {
	d.Node = node
	all.all[all.key(node, d.Volume)] = &d
}

func (all disks) free(node, volume string) { delete(all.all, all.key(node, volume)) }

// holdsFiles reports whether volumes are files in a directory, and no block devices.
func (st Storage) holdsFiles() bool { return st.Type == "dir" || st.Type == "nfs" }

func (c *Config) storage(id string) (Storage, error) {
	i := slices.IndexFunc(c.Storages, func(st Storage) bool { return st.ID == id })
	if i < 0 {
		return Storage{}, internal("storage '%s' does not exist", id)
	}
	return c.Storages[i], nil
}

var folders = map[string]string{
	"iso": "template/iso", "vztmpl": "template/cache", "import": "import", "snippets": "snippets",
}

// file is the path of a volume.
func (st Storage) file(volume string) string {
	_, name, _ := strings.Cut(volume, ":")
	kind, file, _ := strings.Cut(name, "/")
	switch {
	case !st.holdsFiles():
		return "/dev/pve/" + name
	case folders[kind] == "":
		return path.Join(st.Path, "images", name)
	}
	return path.Join(st.Path, folders[kind], file)
}

// onStorage is a handler for a call about one storage that needs a privilege, one of several with | between
// them; none, if it is empty.
func onStorage(privilege string, handle func(*call, Storage) (any, error)) handler {
	return func(c *call) (any, error) {
		path := "/storage/" + c.get("storage")
		if err := c.caller.checkAny(path, strings.Split(privilege, "|")...); privilege != "" && err != nil {
			return nil, err
		}
		st, err := c.s.config.storage(c.get("storage"))
		if err != nil {
			return nil, err
		}
		return handle(c, st)
	}
}

func showStorage(_ *call, st Storage) (any, error) {
	return map[string]any{"type": st.Type, "content": strings.Join(st.Content, ","),
		"shared": number(st.Shared), "enabled": 1, "active": 1, "total": 2 << 40, "used": 1 << 40,
		"avail": 1 << 40}, nil
}

func listStorages(c *call) (any, error) {
	rows, want := []any{}, c.get("content")
	for _, st := range c.s.config.Storages {
		if c.caller.checkAny("/storage/"+st.ID, strings.Split(visible, "|")...) == nil &&
			(want == "" || slices.Contains(st.Content, want)) {
			rows = append(rows, map[string]any{
				"storage": st.ID, "type": st.Type, "content": strings.Join(st.Content, ","),
				"active": 1, "enabled": 1, "shared": number(st.Shared),
				"total": 1 << 40, "used": 1 << 38, "avail": 3 << 38, "used_fraction": 0.25,
			})
		}
	}
	return rows, nil
}

func listContent(c *call, st Storage) (any, error) {
	rows := []any{}
	for _, d := range c.s.disks.sorted() {
		owner := strconv.Itoa(d.Owner)
		if c.s.disks.get(c.get("node"), d.Volume) != d || !strings.HasPrefix(d.Volume, st.ID+":") ||
			cmp.Or(c.get("content"), d.Content) != d.Content || cmp.Or(c.get("vmid"), owner) != owner ||
			c.caller.checkVolume(0, d.Volume, d.Content) != nil {
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
func (c *call) volume(st Storage) (*Disk, error) {
	name := strings.TrimPrefix(c.get("volume"), st.ID+":")
	d := c.s.disks.get(c.get("node"), st.ID+":"+name)
	switch {
	case d == nil && !st.holdsFiles():
		return nil, internal("no such logical volume pve/%s", name)
	case d == nil:
		return nil, internal("volume_size_info on '%s:%s' failed - no format", st.ID, name)
	}
	return d, nil
}

func showVolume(c *call, st Storage) (any, error) {
	volume := st.ID + ":" + strings.TrimPrefix(c.get("volume"), st.ID+":")
	if err := c.caller.checkVolume(0, volume, contentOf(volume)); err != nil {
		return nil, err
	}
	d, err := c.volume(st)
	if err != nil {
		return nil, err
	}
	return map[string]any{"path": st.file(d.Volume), "size": d.Size, "used": d.Size, "format": d.Format}, nil
}

// removeVolume deletes a volume. For a file that does not exist the task succeeds, with a warning in its log.
func removeVolume(c *call, st Storage) (any, error) {
	d, err := c.volume(st)
	if err != nil && !st.holdsFiles() {
		return nil, err
	}
	return c.launch("imgdel", st.ID, func(t *task) error {
		if err != nil {
			t.warn("disk image '%s' does not exist", c.get("volume"))
			return nil
		}
		c.s.disks.free(d.Node, d.Volume)
		return nil
	}).upid, nil
}

// downloadSize is the reported size of every URL.
const downloadSize = 1 << 30

func queryURL(c *call) (any, error) {
	if err := c.checkFetch(); err != nil {
		return nil, err
	}
	where, err := url.Parse(c.get("url"))
	if err != nil || (where.Scheme != "http" && where.Scheme != "https") {
		return nil, badParameter("url", "value does not match the regex pattern\n")
	}
	if fetch := c.s.config.Fetch; fetch != nil {
		if err := fetch(where.String()); err != nil {
			return nil, internal("invalid server response: '%s'\n", err)
		}
	}
	return map[string]any{
		"filename": path.Base(where.Path), "size": downloadSize, "mimetype": "application/octet-stream",
	}, nil
}

// fileNames match the files that may be downloaded, by content type.
var fileNames = map[string]*regexp.Regexp{
	"iso":    regexp.MustCompile(`(?i).\.(iso|img)$`),
	"vztmpl": regexp.MustCompile(`(?i).\.(tar|tar\.(gz|xz|zst|bz2))$`),
	"import": regexp.MustCompile(`^[a-zA-Z0-9_.+-]+\.(ova|qcow2|raw|vmdk)$`),
}

var unsafeName = regexp.MustCompile(`[^a-zA-Z0-9_.-]`)

// download fetches nothing: the file appears when the task is over, with its URL.
func download(c *call, st Storage) (any, error) {
	if err := c.checkFetch(); err != nil {
		return nil, err
	}
	content, name := c.get("content"), unsafeName.ReplaceAllString(path.Base(c.get("filename")), "_")
	switch pattern := fileNames[content]; {
	case !st.holdsFiles():
		return nil, internal("can't upload to storage type '%s', not a file based storage!", st.Type)
	case !slices.Contains(st.Content, content):
		return nil, internal("storage '%s' is not configured for content-type '%s'", st.ID, content)
	case pattern == nil:
		return nil, badParameter("content", "upload content-type '%s' is not allowed", content)
	case !pattern.MatchString(name) && content == "import":
		return nil, badParameter("filename", "invalid filename or wrong extension")
	case !pattern.MatchString(name):
		return nil, badParameter("filename", "wrong file extension")
	}
	d := Disk{
		Volume: st.ID + ":" + content + "/" + name, Size: downloadSize, Format: content, Content: content,
		Source: c.get("url"), Checksum: strings.ToLower(c.get("checksum")),
	}
	if content == "import" {
		d.Format = strings.TrimPrefix(path.Ext(name), ".")
	}
	node := c.get("node")
	return c.launch("download", name, func(*task) error {
		old := c.s.disks.get(node, d.Volume)
		switch {
		case c.get("compression") != "" && content != "iso":
			return fmt.Errorf("decompression not supported for %s", content)
		case old == nil:
			c.s.disks.store(node, d)
		case d.Checksum == "":
			return fmt.Errorf("refusing to override existing file '%s'", st.file(d.Volume))
		case d.Checksum != old.Checksum:
			return fmt.Errorf("checksum mismatch: got '%s' != expect '%s', aborting", old.Checksum,
				d.Checksum)
		}
		return nil
	}).upid, nil
}
