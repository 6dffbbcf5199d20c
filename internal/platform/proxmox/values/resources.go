package values

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	guid "github.com/google/uuid"

	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/platform"
	"github.com/ephemeral-castle/castle/internal/terraform"
)

// The types of resource that own objects.
const (
	// TypeVM is the type of castle's own machines.
	TypeVM       = "proxmox_virtual_environment_vm"
	typeDownload = "proxmox_virtual_environment_download_file"
	typeFile     = "proxmox_virtual_environment_file"
)

// availability has the kinds of objects of high availability, by type of resource.
var availability = map[string]string{
	"proxmox_haresource": platform.HAResource, "proxmox_virtual_environment_haresource": platform.HAResource,
	"proxmox_harule": platform.HARule, "proxmox_virtual_environment_harule": platform.HARule,
}

// Owns reports whether resources of a type own objects in a datacenter.
func Owns(typ string) bool {
	return typ == TypeVM || typ == typeDownload || typ == typeFile || availability[typ] != ""
}

// ObjectsOf lists the objects of resources. Resources of other types own no object in a datacenter.
func ObjectsOf(known []gate.Known) []platform.Object {
	kinds := map[string]string{"import": platform.Image, "iso": platform.Image,
		"snippets": platform.Snippet} // by content type
	var all []platform.Object
	for _, k := range known {
		if !Owns(k.Type) {
			continue
		}
		switch a := ReadAttributes(k.Attributes); {
		case k.Type == TypeVM && a.VM != 0:
			all = append(all, MachineOf(k))
			for _, d := range a.Disks { // one without the id existed before the machine
				if d.Storage != "" && strings.Contains("/"+d.Path, fmt.Sprintf("/vm-%d-", a.VM)) {
					volume := d.Storage + ":" + d.Path
					all = append(all, platform.Object{Kind: platform.Disk, Node: a.Node, VM: a.VM,
						Volume: volume})
				}
			}
		case availability[k.Type] != "":
			if a.ID != "" {
				all = append(all, platform.Object{Kind: availability[k.Type], Volume: a.ID})
			}
		case k.Type != TypeVM && strings.Contains(a.ID, ":"):
			all = append(all, platform.Object{Kind: cmp.Or(kinds[ContentOf(a.ID)], platform.File),
				Node: a.Node, Volume: a.ID})
		}
	}
	return all
}

// MachineOf is the machine of a resource. castle's own record comes first: the provider reads the uuid in
// its state from whatever machine has the id.
func MachineOf(k gate.Known) platform.Object {
	a := ReadAttributes(k.Attributes)
	macs := a.MACs
	for i, card := range a.Cards {
		macs = append(macs[:i:i], card.MAC)
	}
	macs = slices.DeleteFunc(slices.Clone(macs), func(mac string) bool { return mac == "" })
	m := platform.Object{Kind: platform.Machine, Node: a.Node, VM: a.VM, Name: a.Name, MACs: macs}
	if k.MachineID.ID == strconv.Itoa(a.VM) && k.MachineID.UUID != "" {
		m.UUID, m.Was = k.MachineID.UUID, k.MachineID.Replaces
	} else if len(a.SMBIOS) > 0 {
		m.UUID = strings.ToLower(a.SMBIOS[0].UUID)
	}
	return m
}

// Home is the node where castle has last seen a machine that it put there; that of the state, which follows
// every move, where it has not noted one.
func Home(k gate.Known) string {
	m := MachineOf(k)
	if k.MachineID.ID == strconv.Itoa(m.VM) && k.MachineID.Node != "" {
		return k.MachineID.Node
	}
	return m.Node
}

// UUIDOf returns the uuid of a machine that a module derives from the cluster's key, by Terraform's uuidv5.
func UUIDOf(key, name string) string {
	return guid.NewSHA1(guid.NameSpaceOID, []byte(key+"/"+name)).String()
}

// FileID returns the id by which Terraform imports the file of a resource; empty if there is none.
func FileID(k gate.Known) string {
	a := ReadAttributes(k.Attributes)
	if k.Type != typeDownload && k.Type != typeFile || !strings.Contains(a.ID, ":") {
		return ""
	}
	return a.Node + "/" + a.ID
}

// Identities tell how a plan identifies objects, by type.
func Identities() map[string]terraform.Identity {
	download := terraform.Identity{ID: "{node_name}/{datastore_id}:{content_type}/{file_name}"}
	all := map[string]terraform.Identity{
		TypeVM:       {ID: "{node_name}/{vm_id}", UUID: "{smbios.uuid}"},
		typeDownload: download, "proxmox_download_file": download,
	}
	for typ, kind := range availability {
		all[typ] = terraform.Identity{ID: "{resource_id}"}
		if kind == platform.HARule {
			all[typ] = terraform.Identity{ID: "{rule}"}
		}
	}
	return all
}

// FileOf is the downloaded image that Terraform imports by an id, or an object of high availability.
func FileOf(typ, id string) (platform.Object, bool) {
	if kind := availability[typ]; kind != "" {
		return platform.Object{Kind: kind, Volume: id}, true
	}
	node, volume, _ := strings.Cut(id, "/")
	return platform.Object{Kind: platform.Image, Node: node, Volume: volume},
		typ == typeDownload || typ == "proxmox_download_file"
}
