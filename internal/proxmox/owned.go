package proxmox

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	guid "github.com/google/uuid"

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
	Was    string   `json:"was,omitempty"` // the uuid of the machine that this one replaces
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

// attributes are those of a resource in a state that castle reads. One of another type counts as none.
type attributes struct {
	ID     string   `json:"id"`
	VM     int      `json:"vm_id"`
	Name   string   `json:"name"`
	Node   string   `json:"node_name"`
	MACs   []string `json:"mac_addresses"`
	Tags   []string `json:"tags"`
	SMBIOS []struct {
		UUID string `json:"uuid"`
	} `json:"smbios"`
	Disks []struct {
		Interface string `json:"interface"`
		Storage   string `json:"datastore_id"`
		Path      string `json:"path_in_datastore"`
	} `json:"disk"`
}

func readAttributes(all map[string]any) (a attributes) {
	text, err := json.Marshal(all)
	if err == nil {
		_ = json.Unmarshal(text, &a) // it decodes all that it can
	}
	if id, ok := all["vm_id"].(string); ok { // as another module may have it
		a.VM, _ = strconv.Atoi(id) //nolint:errcheck // then it is 0
	}
	return a
}

// OwnedBy lists the objects of resources. Resources of other types own no object in a datacenter.
func OwnedBy(known []gate.Known) []Owned {
	kinds := map[string]string{"import": Image, "iso": Image, "snippets": Snippet} // by content type
	var all []Owned
	for _, k := range known {
		if !Owns(k.Type) {
			continue
		}
		switch a := readAttributes(k.Attributes); {
		case k.Type == typeVM && a.VM != 0:
			all = append(all, machineOf(k))
			for _, d := range a.Disks { // one without the id existed before the machine
				if d.Storage != "" && strings.Contains("/"+d.Path, fmt.Sprintf("/vm-%d-", a.VM)) {
					volume := d.Storage + ":" + d.Path
					all = append(all, Owned{Kind: Disk, Node: a.Node, VM: a.VM, Volume: volume})
				}
			}
		case k.Type != typeVM && strings.Contains(a.ID, ":"):
			all = append(all, Owned{Kind: cmp.Or(kinds[contentOf(a.ID)], File), Node: a.Node, Volume: a.ID})
		}
	}
	return all
}

// machineOf is the machine of a resource. castle's own record comes first: the provider reads the uuid in
// its state from whatever machine has the id.
func machineOf(k gate.Known) Owned {
	a := readAttributes(k.Attributes)
	macs := slices.DeleteFunc(a.MACs, func(mac string) bool { return mac == "" })
	m := Owned{Kind: Machine, Node: a.Node, VM: a.VM, Name: a.Name, MACs: macs}
	if k.MachineID.ID == strconv.Itoa(a.VM) && k.MachineID.UUID != "" {
		m.UUID, m.Was = k.MachineID.UUID, k.MachineID.Replaces
	} else if len(a.SMBIOS) > 0 {
		m.UUID = strings.ToLower(a.SMBIOS[0].UUID)
	}
	return m
}

// UUIDOf returns the uuid of a machine that a module derives from the cluster's key, by Terraform's uuidv5.
func UUIDOf(key, name string) string {
	return guid.NewSHA1(guid.NameSpaceOID, []byte(key+"/"+name)).String()
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
		its := func(u Owned) bool { return u.Kind == Machine && u.VM == o.VM }
		named := slices.ContainsFunc(untracked, same)
		if o.Kind != Disk && named || o.Kind == Disk && slices.ContainsFunc(untracked, its) {
			continue
		}
		o.Left = o.Left || named
		left = append(left, o)
	}
	return left
}

// FileID returns the id by which Terraform imports the file that a resource stands for; empty if there is
// none.
func FileID(k gate.Known) string {
	a := readAttributes(k.Attributes)
	if !Owns(k.Type) || k.Type == typeVM || !strings.Contains(a.ID, ":") {
		return ""
	}
	return a.Node + "/" + a.ID
}

// GuestID returns the id of the guest that a resource in a state stands for, and whether it stands for one
// at all. A guest whose id the state lacks is 0.
func GuestID(kind string, all map[string]any) (id int, isGuest bool) {
	if !strings.HasPrefix(kind, "proxmox_") {
		return 0, false
	}
	id = readAttributes(all).VM
	return id, id != 0 || strings.HasSuffix(kind, "_vm") || strings.HasSuffix(kind, "_container")
}
