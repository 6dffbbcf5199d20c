package platform

import (
	"fmt"
	"slices"
)

// Object is the object in a datacenter of a resource in a Terraform state, which must be gone after a
// destroy. castle records it first, because the state loses it.
type Object struct {
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

// The kinds of Objects.
const (
	Machine = "machine"
	Disk    = "disk"
	Image   = "image"
	Snippet = "snippet"
	File    = "file"
)

// IsFile reports whether the object is neither a machine nor one of its disks.
func (o Object) IsFile() bool { return o.Kind != Machine && o.Kind != Disk }

// ID is the object's name in the datacenter.
func (o Object) ID() string {
	if o.Kind == Machine {
		return fmt.Sprint(o.VM)
	}
	return o.Volume
}

func (o Object) same(p Object) bool {
	return o.Kind == p.Kind && o.VM == p.VM && o.Volume == p.Volume
}

// Merge adds more to all. The newer record of an object replaces the older one: a machine that was replaced
// keeps its id.
func Merge(all []Object, more ...Object) []Object {
	for _, o := range more {
		i := slices.IndexFunc(all, func(p Object) bool {
			return p.same(o) && (p.Node == o.Node || p.Kind == Machine)
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
func Without(all []Object, untracked ...Object) []Object {
	var left []Object
	for _, o := range all {
		same := func(u Object) bool { return u.same(o) && u.Node == o.Node }
		its := func(u Object) bool { return u.Kind == Machine && u.VM == o.VM }
		named := slices.ContainsFunc(untracked, same)
		if o.Kind != Disk && named || o.Kind == Disk && slices.ContainsFunc(untracked, its) {
			continue
		}
		o.Left = o.Left || named
		left = append(left, o)
	}
	return left
}
