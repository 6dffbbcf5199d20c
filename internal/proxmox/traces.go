package proxmox

import (
	"fmt"
	"slices"
	"strings"

	"github.com/ephemeral-castle/castle/internal/gate"
)

// Trace is a thing in a datacenter that a resource in a Terraform state stands
// for: what must be gone when the resource was destroyed. It is kept while that
// goes on, because the state no longer says it afterwards.
type Trace struct {
	Kind string `json:"kind"`           // machine, disk, image, snippet or file
	Node string `json:"node,omitempty"` // where it was
	VM   int    `json:"vm,omitempty"`   // the machine's id; a disk's owner
	// UUID, MACs and Name tell a machine from another one that has got its id since.
	UUID   string   `json:"uuid,omitempty"`
	Name   string   `json:"name,omitempty"`
	MACs   []string `json:"macs,omitempty"`
	Volume string   `json:"volume,omitempty"` // local-lvm:vm-421-disk-0, local:import/talos.qcow2
	Left   bool     `json:"left,omitempty"`   // it may stay: somebody has had castle forget it
}

// The kinds of Trace.
const (
	Machine = "machine"
	Disk    = "disk"
	Image   = "image"
	Snippet = "snippet"
	File    = "file"
)

func (t Trace) isFile() bool { return t.Kind != Machine && t.Kind != Disk }

// ID is what people and Proxmox call it.
func (t Trace) ID() string {
	if t.Kind == Machine {
		return fmt.Sprint(t.VM)
	}
	return t.Volume
}

// Traces lists what to look for when these resources are destroyed. Resources
// of other types leave nothing in a datacenter that could be asked for.
func Traces(known []gate.Known) []Trace {
	var all []Trace
	for _, k := range known {
		text := func(name string) string {
			s, _ := k.Attributes[name].(string) //nolint:errcheck // absent is empty
			return s
		}
		switch k.Type {
		case typeVM:
			if t := (Trace{Kind: Machine, Node: text("node_name"), VM: attributeInt(k.Attributes["vm_id"]), Name: text("name")}); t.VM != 0 {
				t.MACs, t.UUID = attributeStrings(k.Attributes["mac_addresses"]), uuidOf(&k, t.VM)
				all = append(append(all, t), t.disks(k.Attributes["disk"])...)
			}
		case typeDownload, typeFile:
			if id := text("id"); strings.Contains(id, ":") {
				all = append(all, Trace{Kind: kindOfFile(id), Node: text("node_name"), Volume: id})
			}
		}
	}
	return all
}

// The types of resource that leave traces.
const (
	typeVM       = "proxmox_virtual_environment_vm"
	typeDownload = "proxmox_virtual_environment_download_file"
	typeFile     = "proxmox_virtual_environment_file"
)

// Leaves reports whether resources of a type leave traces.
func Leaves(typ string) bool { return typ == typeVM || typ == typeDownload || typ == typeFile }

// disks are those that a machine's state names and that carry its id; others
// were there before it.
func (t Trace) disks(blocks any) []Trace {
	var all []Trace
	list, _ := blocks.([]any) //nolint:errcheck // anything else counts as none
	for _, block := range list {
		disk, _ := block.(map[string]any)             //nolint:errcheck // likewise
		storage, _ := disk["datastore_id"].(string)   //nolint:errcheck // likewise
		name, _ := disk["path_in_datastore"].(string) //nolint:errcheck // likewise
		own := strings.Contains("/"+name, fmt.Sprintf("/vm-%d-", t.VM))
		if storage != "" && own {
			all = append(all, Trace{Kind: Disk, Node: t.Node, VM: t.VM, Volume: storage + ":" + name})
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

// Merge adds more to traces. What is among both counts as more says it: a
// machine that was replaced keeps its id.
func Merge(traces []Trace, more ...Trace) []Trace {
	for _, t := range more {
		same := func(o Trace) bool {
			return o.Kind == t.Kind && o.VM == t.VM && o.Volume == t.Volume && (o.Node == t.Node || o.Kind == Machine)
		}
		if i := slices.IndexFunc(traces, same); i >= 0 {
			traces[i] = t
		} else {
			traces = append(traces, t)
		}
	}
	return traces
}

// Without is what is left of traces if some are not asked for any more. The disks
// of a machine go with it. A disk without its machine is only marked: it would
// else be found again by the machine's id.
func Without(traces []Trace, forgotten ...Trace) []Trace {
	var left []Trace
	for _, t := range traces {
		same := func(f Trace) bool {
			return f.Kind == t.Kind && f.VM == t.VM && f.Volume == t.Volume && f.Node == t.Node
		}
		its := func(f Trace) bool { return f.Kind == Machine && t.Kind == Disk && f.VM == t.VM }
		switch {
		case slices.ContainsFunc(forgotten, its), slices.ContainsFunc(forgotten, same) && t.Kind != Disk:
			continue
		case slices.ContainsFunc(forgotten, same):
			t.Left = true
		}
		left = append(left, t)
	}
	return left
}
