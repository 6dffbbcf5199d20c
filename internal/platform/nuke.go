package platform

import (
	"context"
	"fmt"
	"strconv"
	"strings"
)

// Nuke finds and deletes the machines of a range of ids, or what is labelled as a cluster's, by signs and
// without any state. It makes one change after the other, stops at the first surprise and repeats nothing.
type Nuke interface {
	// Survey lists the guests in the range, those of ids that the token may not see included; or every
	// resource with the cluster's label, in the order of their deletion.
	Survey(ctx context.Context) ([]Guest, error)
	// Disks lists the disks that carry an id of the range and that no guest uses, and what could not be read.
	// stays returns why a guest will keep its id; "" if it goes or does not exist.
	Disks(ctx context.Context, stays func(id int) string) (all []Orphan, unread []string, err error)
	// Remove stops and deletes a guest of the last Survey, proved, and refuses one that has changed since.
	Remove(ctx context.Context, g Guest) (Remains, error)
	// Free deletes a disk, and proves that it is gone. It refuses one that has changed since.
	Free(ctx context.Context, o Orphan) error
	// Remaining lists the guests that there are now.
	Remaining(ctx context.Context) ([]Guest, error)
	// Advice is what to do about an error; "" if nothing is known.
	Advice(err error) string
}

// Signs tell which guests of a range are castle's own. It is for machines whose record is lost, so it goes by
// signs. An id alone proves nothing: ids are used again, and the next machine on one may be anybody's.
type Signs struct {
	Range   Range  // zero where the platform goes by labels
	Cluster string // only this cluster's machines; those of any, if empty
	Foreign []int  // ids whose ownership the user vouches for
	// Known are the machines in the records of clusters.
	Known []RecordedMachine
	// Keys are the keys, by the cluster's name, from which the uuids of its machines may derive.
	Keys map[string]string
}

// RecordedMachine is a machine in the record of a cluster.
type RecordedMachine struct {
	Cluster string // blue/proxmox
	Machine Object
}

// Guest is a machine of a datacenter, castle's own or not.
type Guest struct {
	ID      int      `json:"vmid"`
	Name    string   `json:"name"`
	Kind    string   `json:"kind"`
	Node    string   `json:"node"`
	Status  string   `json:"status"`
	UUID    string   `json:"uuid"`
	Uptime  float64  `json:"uptime"` // in seconds
	Tags    []string `json:"tags"`
	Pool    string   `json:"pool,omitempty"`
	Foreign bool     `json:"foreign"`           // deleted only because its id was named
	CopyOf  int      `json:"copy_of,omitempty"` // the recorded machine whose uuid it has
	Refused []string `json:"refused,omitempty"` // why castle does not delete it; deleted if empty
	Deleted bool     `json:"deleted"`

	Called string `json:"-"` // in the platform's words: VM 421
	Where  string `json:"-"` // likewise: on node pve1; empty for what is everywhere
	State  string `json:"-"` // whether it runs, and for how long
	Unread bool   `json:"-"` // nobody knows what disks it has
	Kept   bool   `json:"-"` // it outlives the cluster, because the user keeps it
}

// Goes reports whether the guest may be deleted.
func (g Guest) Goes() bool { return len(g.Refused) == 0 }

// String describes the guest and why it stays.
func (g Guest) String() string {
	text := g.Called
	if g.Name != "" {
		text += fmt.Sprintf(" %q", g.Name)
	}
	if len(g.Refused) > 0 {
		text += " (" + strings.Join(g.Refused, ", ") + ")"
	}
	return text
}

// Remains lists the leftovers of a deleted machine.
type Remains struct {
	Gone         bool     // it is proved gone
	Own          []string // volumes of its configuration: they could not be freed
	Unreferenced []string // volumes whose names carry its id
}

// Range is a span of guest ids, both ends included.
type Range struct{ From, To int }

// Widest is how many ids a range may have: more are a typing error.
const Widest = 64

// ParseRange reads "421-432", or "421" for one id.
func ParseRange(text string) (Range, error) {
	from, to, isSpan := strings.Cut(text, "-")
	if !isSpan {
		to = from
	}
	first, err := strconv.Atoi(from)
	last, wrong := strconv.Atoi(to)
	r := Range{first, last}
	switch {
	case err != nil || wrong != nil || strconv.Itoa(first) != from || strconv.Itoa(last) != to:
		return Range{}, fmt.Errorf("%q is not a range of VM ids such as 421-432", text)
	case r.From < 100 || r.To > 999999999:
		return Range{}, fmt.Errorf("range %s: VM ids go from 100 to 999999999", text)
	case r.From > r.To:
		return Range{}, fmt.Errorf("range %s ends before it begins", text)
	case r.To-r.From >= Widest:
		return Range{}, fmt.Errorf("range %s has %d ids; more than %d at once are refused", text,
			r.To-r.From+1, Widest)
	}
	return r, nil
}

// Contains reports whether an id lies in the range.
func (r Range) Contains(id int) bool { return r.From <= id && id <= r.To }

// IDs lists the ids in ascending order.
func (r Range) IDs() (all []int) {
	for id := r.From; id <= r.To; id++ {
		all = append(all, id)
	}
	return all
}

func (r Range) String() string {
	if r.From == r.To {
		return strconv.Itoa(r.From)
	}
	return fmt.Sprintf("%d-%d", r.From, r.To)
}

// Orphan is a disk with an id of the range in its name that no guest uses: a leftover of a deleted machine.
type Orphan struct {
	Volume  string `json:"volume"`
	Node    string `json:"node"`
	Storage string `json:"storage"`
	Size    int64  `json:"size"`
	ID      int    `json:"vmid"`
	Shared  bool   `json:"shared"`            // another Proxmox cluster may have a machine with that id
	Refused string `json:"refused,omitempty"` // why it must not be deleted
	Chosen  bool   `json:"chosen"`            // the user wants it deleted
	Deleted bool   `json:"deleted"`
}

// Goes reports whether the disk may be deleted.
func (o Orphan) Goes() bool { return o.Chosen && o.Refused == "" }

func (o Orphan) String() string {
	if o.Refused != "" {
		return fmt.Sprintf("disk %s (%s)", o.Volume, o.Refused)
	}
	return "disk " + o.Volume
}
