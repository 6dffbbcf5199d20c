package storage

import (
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/ephemeral-castle/castle/internal/emulator/proxmox/access"
	"github.com/ephemeral-castle/castle/internal/emulator/proxmox/failure"
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

	Config map[string]string // of the guest in a backup
}

type volumeKey struct{ node, volume string }

// Volumes are the volumes of all nodes. One on a shared storage is the same on every node.
type Volumes struct {
	storages []Storage
	fetch    func(url string) error // what a node hears from a web server; if set
	all      map[volumeKey]*Disk
}

// New returns storages without volumes. fetch, if it is not nil, is what a node hears from a web server
// when it asks for a URL.
func New(storages []Storage, fetch func(url string) error) *Volumes {
	return &Volumes{storages, fetch, map[volumeKey]*Disk{}}
}

// IsShared reports whether a volume is on a storage that all nodes share.
func (all *Volumes) IsShared(volume string) bool {
	id, _, _ := strings.Cut(volume, ":")
	st, err := all.Storage(id)
	return err == nil && st.Shared
}

func (all *Volumes) key(node, volume string) volumeKey {
	if all.IsShared(volume) {
		node = ""
	}
	return volumeKey{node, volume}
}

// Get returns a volume as a node sees it; nil if there is none.
func (all *Volumes) Get(node, volume string) *Disk { return all.all[all.key(node, volume)] }

// Sorted lists every volume, by node and name.
func (all *Volumes) Sorted() []*Disk {
	return slices.SortedFunc(maps.Values(all.all), func(a, b *Disk) int {
		return strings.Compare(a.Node+" "+a.Volume, b.Node+" "+b.Volume)
	})
}

// Store adds a volume, or replaces it.
func (all *Volumes) Store(node string, d Disk) {
	d.Node = node
	all.all[all.key(node, d.Volume)] = &d
}

// Free deletes a volume, if it exists.
func (all *Volumes) Free(node, volume string) { delete(all.all, all.key(node, volume)) }

// Storage finds a storage.
func (all *Volumes) Storage(id string) (Storage, error) {
	i := slices.IndexFunc(all.storages, func(st Storage) bool { return st.ID == id })
	if i < 0 {
		return Storage{}, failure.Internal("storage '%s' does not exist", id)
	}
	return all.storages[i], nil
}

// CheckAccess is the error for a caller that may not use a volume for a machine; 0 for none.
func CheckAccess(caller access.Caller, id int, volume, content string) error {
	storage, _, _ := strings.Cut(volume, ":")
	path, owner := "/storage/"+storage, OwnerOf(volume)
	switch {
	case caller.May(path, "Datastore.Allocate"), owner != 0 && owner == id:
		return nil
	case owner != 0:
		if err := caller.Check(path, "Datastore.Audit"); err != nil {
			return err
		}
		return caller.Check(access.VMPath(owner), "VM.Config.Disk")
	case content == "iso" || content == "vztmpl" || content == "import":
		return caller.CheckAny(path, "Datastore.AllocateSpace", "Datastore.Audit")
	}
	return failure.Internal("missing privileges to access %s", volume)
}

// ContentOf is the content type in the name of a file on a storage: local:import/talos.qcow2.
func ContentOf(volume string) string {
	_, name, _ := strings.Cut(volume, ":")
	kind, _, _ := strings.Cut(name, "/")
	return kind
}

var ownedVolume = regexp.MustCompile(`^[^:]+:(?:\d+/base-\d+-[^/]+/)?(?:\d+/)?(?:vm|base)-(\d+)-`)

// OwnerOf reads the guest's id from a volume's name; 0 if it belongs to none.
func OwnerOf(volume string) int {
	id := 0
	if found := ownedVolume.FindStringSubmatch(volume); found != nil {
		id, _ = strconv.Atoi(found[1]) //nolint:errcheck // the pattern is a number
	}
	return id
}

// FreeName is the first free volume vm-<id>-disk-<n>.
// Free deletes a volume, if it exists.
func (all *Volumes) FreeName(node string, st Storage, id int, format string) string {
	for n := 0; ; n++ {
		volume := st.Image(id, "disk-"+strconv.Itoa(n), format)
		if all.Get(node, volume) == nil {
			return volume
		}
	}
}
