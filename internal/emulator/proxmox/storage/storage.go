// Package storage emulates the storages of a datacenter and the volumes on them (PVE::Storage), with their
// calls.
package storage

import (
	"fmt"
	"path"
	"strings"
)

// Storage is one datastore, present on every node.
type Storage struct {
	ID      string
	Type    string   // dir, nfs, lvmthin or rbd
	Content []string // what it may hold: images, import, iso, …
	Path    string   // the directory of a dir or nfs
	Shared  bool     // every node sees the same volumes
}

// HoldsFiles reports whether volumes are files in a directory, and no block devices.
func (st Storage) HoldsFiles() bool { return st.Type == "dir" || st.Type == "nfs" }

var folders = map[string]string{
	"iso": "template/iso", "vztmpl": "template/cache", "import": "import", "snippets": "snippets",
}

// file is the path of a volume.
func (st Storage) file(volume string) string {
	_, name, _ := strings.Cut(volume, ":")
	kind, file, _ := strings.Cut(name, "/")
	switch {
	case !st.HoldsFiles():
		return "/dev/pve/" + name
	case folders[kind] == "":
		return path.Join(st.Path, "images", name)
	}
	return path.Join(st.Path, folders[kind], file)
}

// Image is the volume of a guest's disk on the storage.
func (st Storage) Image(id int, name, format string) string {
	if st.HoldsFiles() {
		return fmt.Sprintf("%s:%d/vm-%[2]d-%s.%s", st.ID, id, name, format)
	}
	return fmt.Sprintf("%s:vm-%d-%s", st.ID, id, name)
}
