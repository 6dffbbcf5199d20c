// Package nuke deletes the machines of a range of VM ids without any state. It then archives the states
// whose machines are all verified as gone.
package nuke

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/proxmox"
	"github.com/ephemeral-castle/castle/internal/run"
	"github.com/ephemeral-castle/castle/internal/state"
)

// Options select the ids to delete and the datacenter that has them.
type Options struct {
	StateDir string   // --state-dir; empty: from Environ
	Environ  []string // the caller's environment
	// Repository is where exported kubeconfigs are removed; empty: nowhere.
	Repository string
	Range      proxmox.Range
	// Cluster limits the nuke to one cluster's machines, and completes
	// Datacenter from its record: "blue" or "blue/proxmox".
	Cluster string
	Foreign []int // ids to delete though nothing marks them as castle's
	// Unreferenced also deletes disks that carry an id of the range and that no guest uses.
	Unreferenced bool
	Datacenter   proxmox.Options
	// DefaultEndpoint applies if neither Datacenter nor Cluster names one: a named
	// cluster has priority over the shell's environment.
	DefaultEndpoint string
	// Interval and Patience are those of a proxmox.Removal.
	Interval, Patience time.Duration
}

// Nuke lists the objects that castle would delete in a range of ids, found without any state.
type Nuke struct {
	Range     string   `json:"range"`
	Endpoint  string   `json:"endpoint"`
	Disks     []Disk   `json:"disks"` // that no guest uses
	Guests    []Guest  `json:"guests"`
	States    []State  `json:"states"`
	Journal   string   `json:"journal,omitempty"`
	Remarks   []string `json:"remarks,omitempty"` // further notes for the user
	options   Options  // completed
	root      string   // of all state directories
	client    *proxmox.Client
	ownership proxmox.Ownership
}

// Guest is one guest in the range.
type Guest struct {
	ID      int      `json:"vmid"`
	Name    string   `json:"name"`
	Kind    string   `json:"kind"`
	Node    string   `json:"node"`
	Status  string   `json:"status"`
	Tags    []string `json:"tags"`
	Pool    string   `json:"pool,omitempty"`
	Foreign bool     `json:"foreign"`           // deleted only because its id was named
	Refused []string `json:"refused,omitempty"` // why castle does not delete it; deleted if empty
	Deleted bool     `json:"deleted"`

	subject proxmox.Guest
}

// Goes reports whether the guest may be deleted.
func (g Guest) Goes() bool { return len(g.Refused) == 0 }

// Survey reads every guest in the range and the clusters whose machines have ids there. It changes
// nothing.
func Survey(ctx context.Context, o Options) (*Nuke, error) {
	root, err := state.Root(o.StateDir, o.Environ)
	if err != nil {
		return nil, err
	}
	recorded, err := recordedClusters(root)
	if err != nil {
		return nil, err
	}
	n := &Nuke{
		Range:   o.Range.String(),
		Guests:  []Guest{},
		States:  []State{},
		Disks:   []Disk{},
		options: o,
		root:    root,
	}
	n.ownership = proxmox.Ownership{Range: o.Range, Foreign: o.Foreign}
	if o.Cluster != "" {
		if err := n.choose(recorded); err != nil {
			return nil, err
		}
	}
	if err := n.connect(); err != nil {
		return nil, err
	}
	n.noteMachines(recorded)
	subjects, err := n.client.Survey(ctx, o.Range)
	if err != nil {
		return nil, n.noAnswer(err)
	}
	for _, s := range subjects {
		g := Guest{
			ID: s.ID, Name: s.Name, Kind: s.Kind, Node: s.Node, Status: s.Status,
			Tags: s.Tags(), Pool: s.Pool,
			Refused: n.ownership.Refusals(s), subject: s,
		}
		owned := n.ownership
		owned.Foreign = nil
		g.Foreign = g.Goes() && len(owned.Refusals(s)) > 0
		n.Guests = append(n.Guests, g)
	}
	n.States = n.affectedStates(recorded)
	return n, n.findDisks(ctx)
}

// choose finds the named cluster and completes the options from its record.
func (n *Nuke) choose(recorded []*recordedCluster) error {
	name, _, whole := strings.Cut(n.options.Cluster, "/")
	var found []*recordedCluster
	var names []string
	for _, c := range recorded {
		names = append(names, c.name)
		cluster, _, _ := strings.Cut(c.name, "/")
		if c.name == n.options.Cluster || !whole && cluster == name {
			found = append(found, c)
		}
	}
	switch {
	case len(found) == 0 && len(names) == 0:
		return &cluster.UsageError{
			Message: fmt.Sprintf(
				"--cluster %s: nothing is recorded of any cluster; give the endpoint and the token instead",
				n.options.Cluster,
			),
		}
	case len(found) != 1:
		return &cluster.UsageError{
			Message: fmt.Sprintf("--cluster %s: there are %s", n.options.Cluster, strings.Join(names, ", ")),
		}
	}
	n.ownership.Cluster = name
	have, given := found[0].datacenter, &n.options.Datacenter
	given.Endpoint = cmp.Or(given.Endpoint, have.Endpoint)
	if !proxmox.SameEndpoint(given.Endpoint, have.Endpoint) {
		return nil // never send a recorded token to another endpoint
	}
	given.Token = cmp.Or(given.Token, have.Token)
	if given.CA == "" && !given.Insecure {
		given.CA, given.Insecure = have.CA, have.Insecure
	}
	return nil
}

func (n *Nuke) connect() error {
	d := n.options.Datacenter
	d.Endpoint = cmp.Or(d.Endpoint, n.options.DefaultEndpoint)
	ways := "--endpoint or PROXMOX_VE_ENDPOINT, or --cluster of one that was recorded"
	switch {
	case d.Endpoint == "":
		return &cluster.UsageError{Message: "no endpoint: say where Proxmox is with " + ways}
	case d.Token == "":
		return &cluster.UsageError{
			Message: "no API token: set PROXMOX_VE_API_TOKEN (a flag would show it to others), " +
				"or name a --cluster that was recorded",
		}
	}
	if err := proxmox.CheckToken(d.Token); err != nil {
		return &cluster.UsageError{Message: err.Error()}
	}
	client, err := proxmox.NewClient(d)
	if err != nil {
		return &cluster.UsageError{Message: err.Error()}
	}
	n.client, n.Endpoint = client, d.Endpoint
	return nil
}

// ParseRange reads a range of ids: "421-432", or "421" for one.
func ParseRange(text string) (proxmox.Range, error) { return proxmox.ParseRange(text) }

// Going returns the guests that Run would delete.
func (n *Nuke) Going() []Guest {
	return slices.DeleteFunc(slices.Clone(n.Guests), func(g Guest) bool { return !g.Goes() })
}

// NothingToDo reports whether Run would change nothing.
func (n *Nuke) NothingToDo() bool {
	return len(n.Going()) == 0 && !slices.ContainsFunc(n.Disks, Disk.Goes) &&
		!slices.ContainsFunc(n.States, func(s State) bool { return s.Stays == "" })
}

// Left returns a *LeftoverError with everything that is still in the range, or nil.
func (n *Nuke) Left() error {
	var left []string
	for _, g := range n.Guests {
		if !g.Deleted {
			left = append(left, g.String())
		}
	}
	for _, d := range n.Disks {
		if n.options.Unreferenced && !d.Deleted {
			left = append(left, d.String())
		}
	}
	if len(left) == 0 {
		return nil
	}
	return &run.LeftoverError{Left: left, After: "nuke"}
}

// String describes the guest and why it stays.
func (g Guest) String() string {
	text := fmt.Sprintf("VM %d", g.ID)
	if g.Name != "" {
		text += fmt.Sprintf(" %q", g.Name)
	}
	if len(g.Refused) > 0 {
		text += " (" + strings.Join(g.Refused, ", ") + ")"
	}
	return text
}

// Run deletes the guests and disks, and then archives the states whose machines are all verified as gone.
// It stops at the first difference from Survey and archives nothing then. It reports each step.
func (n *Nuke) Run(ctx context.Context, report func(string)) (err error) {
	locks, err := n.lock(ctx, report)
	defer func() { err = errors.Join(err, locks.unlock()) }()
	if err != nil {
		return err
	}
	journal, err := state.NewDeletions(n.root)
	if err != nil {
		return err
	}
	n.Journal = journal.Path
	defer func() { err = errors.Join(err, journal.Close()) }()
	removal := &proxmox.Removal{
		Client: n.client, Ownership: n.ownership, Interval: n.options.Interval, Timeout: n.options.Patience,
		Note: func(s proxmox.Step) error {
			if text := s.String(); text != "" {
				report(text)
			}
			return journal.Append(s)
		},
	}
	var stuck []string
	for i := range n.Guests {
		g := &n.Guests[i]
		if !g.Goes() {
			continue
		}
		if err := ctx.Err(); err != nil {
			return n.stopped(context.Cause(ctx))
		}
		remains, err := removal.Remove(ctx, g.subject)
		g.Deleted = remains.Gone
		stuck = append(stuck, remains.Own...)
		for _, volume := range remains.Unreferenced {
			if slices.ContainsFunc(n.Disks, func(d Disk) bool { return d.Volume == volume }) {
				continue
			}
			n.Remarks = append(
				n.Remarks,
				fmt.Sprintf("%s carries VM %d's id, but its configuration did not name it; it is left",
					volume, g.ID),
			)
		}
		if err != nil {
			return n.stopped(err)
		}
		if len(stuck) > 0 {
			return n.stopped(&run.LeftoverError{Left: stuck, After: "nuke"})
		}
	}
	if err := n.deleteDisks(ctx, removal); err != nil {
		return n.stopped(err)
	}
	taken, err := n.verify(ctx)
	if err != nil {
		return n.stopped(err)
	}
	return errors.Join(n.archive(taken, locks, report, journal), n.Left())
}

// verify reads for every id in the range whether a guest has it. A guest that appeared meanwhile counts
// as refused.
func (n *Nuke) verify(ctx context.Context) (map[int]bool, error) {
	taken := map[int]bool{}
	for id := n.options.Range.From; id <= n.options.Range.To; id++ {
		var err error
		if taken[id], err = n.client.Taken(ctx, id); err != nil {
			return nil, err
		}
		known := slices.ContainsFunc(n.Guests, func(g Guest) bool { return g.ID == id && !g.Deleted })
		if taken[id] && !known {
			n.Guests = append(n.Guests,
				Guest{ID: id, Refused: []string{"appeared while others were deleted"}})
		}
	}
	return taken, nil
}

// stopped adds the leftovers of a stopped nuke to an error.
func (n *Nuke) stopped(err error) error {
	for i := range n.States {
		if n.States[i].Stays == "" {
			n.States[i].Stays = "the nuke did not come to its end"
		}
	}
	return errors.Join(err, n.Left())
}
