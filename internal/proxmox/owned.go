package proxmox

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/ephemeral-castle/castle/internal/gate"
)

// Owned is the object in a datacenter of a resource in a Terraform state, which must be gone after a
// destroy. castle records it first, because the state loses it.
type Owned struct {
	Kind string `json:"kind"`           // machine, disk, image, snippet or file
	Node string `json:"node,omitempty"` // where it was
	VM   int    `json:"vm,omitempty"`   // the machine's id; a disk's owner
	// UUID, MACs and Name tell a machine from another one that has got its id since.
	UUID   string   `json:"uuid,omitempty"`
	Name   string   `json:"name,omitempty"`
	MACs   []string `json:"macs,omitempty"`
	Volume string   `json:"volume,omitempty"` // local-lvm:vm-421-disk-0, local:import/talos.qcow2
	Left   bool     `json:"left,omitempty"`   // it may stay: a user has had castle untrack it
}

// The kinds of Owned objects.
const (
	Machine = "machine"
	Disk    = "disk"
	Image   = "image"
	Snippet = "snippet"
	File    = "file"
)

func (o Owned) isFile() bool { return o.Kind != Machine && o.Kind != Disk }

// ID is the object's name in Proxmox.
func (o Owned) ID() string {
	if o.Kind == Machine {
		return fmt.Sprint(o.VM)
	}
	return o.Volume
}

// The types of resource that own objects.
const (
	typeVM       = "proxmox_virtual_environment_vm"
	typeDownload = "proxmox_virtual_environment_download_file"
	typeFile     = "proxmox_virtual_environment_file"
)

// Owns reports whether resources of a type own objects in a datacenter.
func Owns(typ string) bool { return typ == typeVM || typ == typeDownload || typ == typeFile }

// OwnedBy lists the objects of resources. Resources of other types own no object in a datacenter.
func OwnedBy(known []gate.Known) []Owned {
	var all []Owned
	for _, k := range known {
		switch k.Type {
		case typeVM:
			if m := machineOf(k); m.VM != 0 {
				all = append(append(all, m), m.disks(k.Attributes["disk"])...)
			}
		case typeDownload, typeFile:
			if id := attributeString(k.Attributes["id"]); strings.Contains(id, ":") {
				node := attributeString(k.Attributes["node_name"])
				all = append(all, Owned{Kind: kindOfFile(id), Node: node, Volume: id})
			}
		}
	}
	return all
}

// machineOf is the machine of a resource. The provider keeps no uuid in its state unless the configuration
// has one, so castle's own record comes first.
func machineOf(k gate.Known) Owned {
	m := Owned{
		Kind: Machine, Node: attributeString(k.Attributes["node_name"]),
		VM:   attributeInt(k.Attributes["vm_id"]),
		Name: attributeString(k.Attributes["name"]), MACs: attributeStrings(k.Attributes["mac_addresses"]),
	}
	if k.MachineID.ID == strconv.Itoa(m.VM) && k.MachineID.UUID != "" {
		m.UUID = k.MachineID.UUID
	} else if blocks, ok := k.Attributes["smbios"].([]any); ok && len(blocks) > 0 {
		smbios, _ := blocks[0].(map[string]any) //nolint:errcheck // other types count as none
		m.UUID = strings.ToLower(attributeString(smbios["uuid"]))
	}
	return m
}

// disks are those that the machine's state names and that carry its id; others existed before it.
func (o Owned) disks(blocks any) []Owned {
	var all []Owned
	list, _ := blocks.([]any) //nolint:errcheck // other types count as none
	for _, block := range list {
		disk, _ := block.(map[string]any) //nolint:errcheck // likewise
		storage, name := attributeString(disk["datastore_id"]), attributeString(disk["path_in_datastore"])
		if storage != "" && strings.Contains("/"+name, fmt.Sprintf("/vm-%d-", o.VM)) {
			all = append(all, Owned{Kind: Disk, Node: o.Node, VM: o.VM, Volume: storage + ":" + name})
		}
	}
	return all
}

func kindOfFile(volume string) string {
	switch contentOf(volume) {
	case "import", "iso":
		return Image
	case "snippets":
		return Snippet
	}
	return File
}

// contentOf is the content type that a file's volume id carries.
func contentOf(volume string) string {
	_, name, _ := strings.Cut(volume, ":")
	content, _, _ := strings.Cut(name, "/")
	return content
}

func storageOf(volume string) string {
	storage, _, _ := strings.Cut(volume, ":")
	return storage
}

func (o Owned) sameVolume(p Owned) bool {
	return o.Kind == p.Kind && o.VM == p.VM && o.Volume == p.Volume
}

// Merge adds more to all. The newer record of an object replaces the older one: a machine that was replaced
// keeps its id.
func Merge(all []Owned, more ...Owned) []Owned {
	for _, o := range more {
		i := slices.IndexFunc(all, func(p Owned) bool {
			return p.sameVolume(o) && (p.Node == o.Node || p.Kind == Machine)
		})
		if i >= 0 {
			all[i] = o
		} else {
			all = append(all, o)
		}
	}
	return all
}

// Without removes objects that castle no longer tracks, and the disks of machines among them. A disk
// without its machine is only marked: the machine's id would find it again.
func Without(all []Owned, untracked ...Owned) []Owned {
	var left []Owned
	for _, o := range all {
		same := func(u Owned) bool { return u.sameVolume(o) && u.Node == o.Node }
		its := func(u Owned) bool { return u.Kind == Machine && o.Kind == Disk && u.VM == o.VM }
		switch {
		case slices.ContainsFunc(untracked, its), slices.ContainsFunc(untracked, same) && o.Kind != Disk:
			continue
		case slices.ContainsFunc(untracked, same):
			o.Left = true
		}
		left = append(left, o)
	}
	return left
}

// GuestID returns the id of the guest that a resource in a state stands for, and whether it stands for one
// at all. A guest whose id the state lacks is 0.
func GuestID(kind string, attributes map[string]any) (id int, isGuest bool) {
	if !strings.HasPrefix(kind, "proxmox_") {
		return 0, false
	}
	id = attributeInt(attributes["vm_id"])
	return id, id != 0 || strings.HasSuffix(kind, "_vm") || strings.HasSuffix(kind, "_container")
}

// attributeInt reads a number as Terraform's state or Proxmox writes it; 0 if there is none.
func attributeInt(v any) int {
	switch n := v.(type) {
	case int:
		return n
	case int64:
		return int(n)
	case float64:
		return int(n)
	case json.Number, string:
		i, err := strconv.Atoi(fmt.Sprint(n))
		if err == nil {
			return i
		}
	}
	return 0
}

func attributeString(v any) string {
	s, _ := v.(string) //nolint:errcheck // other types count as none
	return s
}

func attributeStrings(v any) []string {
	if all, ok := v.([]string); ok {
		return all
	}
	var all []string
	list, _ := v.([]any) //nolint:errcheck // other types count as none
	for _, x := range list {
		if s, ok := x.(string); ok {
			all = append(all, s)
		}
	}
	return all
}
