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

	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/proxmox"
	"github.com/ephemeral-castle/castle/internal/run"
	"github.com/ephemeral-castle/castle/internal/state"
	"github.com/ephemeral-castle/castle/internal/store"
)

// Options select the ids to delete and the datacenter that has them.
type Options struct {
	StateDir string   // --state-dir; empty: from Environ
	Environ  []string // the caller's environment
	Version  string   // castle's own
	// Repository is where exported kubeconfigs are removed, and where castle.hcl names the store of the
	// states; empty: nowhere.
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
	store     *cluster.StateStore
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
	UUID    string   `json:"uuid"`
	Uptime  float64  `json:"uptime"` // in seconds
	Tags    []string `json:"tags"`
	Pool    string   `json:"pool,omitempty"`
	Foreign bool     `json:"foreign"`           // deleted only because its id was named
	Refused []string `json:"refused,omitempty"` // why castle does not delete it; deleted if empty
	Deleted bool     `json:"deleted"`

	subject proxmox.Guest
}

// Goes reports whether the guest may be deleted.
func (g Guest) Goes() bool { return len(g.Refused) == 0 }

// State tells whether the guest runs, and for how long.
func (g Guest) State() string { return g.subject.State() }

// Disk is a disk that carries an id of the range and that no guest uses.
type Disk = proxmox.Orphan

// Survey reads every guest in the range and the clusters whose machines have ids there. It changes nothing.
func Survey(ctx context.Context, o Options) (*Nuke, error) {
	root, err := state.Root(o.StateDir, o.Environ)
	if err != nil {
		return nil, err
	}
	n := &Nuke{Range: o.Range.String(), Guests: []Guest{}, Disks: []Disk{}, options: o, root: root}
	n.store, err = cluster.OpenStore(ctx, cluster.Options{
		Repository: o.Repository, Environ: o.Environ, Version: o.Version,
	})
	if err != nil {
		return nil, err
	}
	recorded, err := n.recordedClusters(ctx)
	if errors.As(err, new(*store.Error)) {
		err = fmt.Errorf("%w\n  nuke reads there which machines the clusters own; if it is lost for good, "+
			"CASTLE_STATE_STORE=local makes nuke use the state directory of this machine alone", err)
	}
	if err != nil {
		return nil, err
	}
	n.ownership = proxmox.Ownership{Range: o.Range, Foreign: o.Foreign, Keys: map[string]string{}}
	if o.Cluster != "" {
		if err := n.choose(recorded); err != nil {
			return nil, err
		}
	}
	if err := n.connect(); err != nil {
		return nil, err
	}
	for _, c := range recorded {
		if name, _, _ := strings.Cut(c.name, "/"); c.elsewhere(n.Endpoint) == "" && c.dir != nil {
			n.ownership.Keys[name] = cmp.Or(cluster.MachineKey(c.dir), n.ownership.Keys[name])
		}
		if len(c.endpoints) == 0 || c.elsewhere(n.Endpoint) != "" {
			continue
		}
		for _, machine := range c.machinesOf {
			n.ownership.Known = append(n.ownership.Known, proxmox.Known{Cluster: c.name, Machine: machine})
		}
	}
	subjects, err := n.client.Survey(ctx, o.Range, n.ownership.Known)
	if err != nil {
		return nil, n.noAnswer(err)
	}
	owned := n.ownership
	owned.Foreign = nil
	for _, s := range subjects {
		g := Guest{ID: s.ID, Name: s.Name, Kind: s.Kind, Node: s.Node, Status: s.Status, Tags: s.Tags(),
			UUID: s.UUID(), Uptime: s.Uptime, Pool: s.Pool, Refused: n.ownership.Refusals(s), subject: s}
		g.Foreign = g.Goes() && len(owned.Refusals(s)) > 0
		n.Guests = append(n.Guests, g)
	}
	n.States = n.affectedStates(recorded)
	return n, n.findDisks(ctx)
}

// choose finds the named cluster and completes the options from its record.
func (n *Nuke) choose(recorded []*recordedCluster) error {
	var found []*recordedCluster
	var names []string
	for _, c := range recorded {
		names = append(names, c.name)
		name, _, _ := strings.Cut(c.name, "/")
		if n.options.Cluster == c.name || n.options.Cluster == name {
			found = append(found, c)
		}
	}
	switch {
	case len(names) == 0:
		return usageError("--cluster %s: nothing is recorded of any cluster; give the endpoint and the "+
			"token instead", n.options.Cluster)
	case len(found) != 1:
		return usageError("--cluster %s: there are %s", n.options.Cluster, strings.Join(names, ", "))
	}
	n.ownership.Cluster, _, _ = strings.Cut(n.options.Cluster, "/")
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

func usageError(format string, args ...any) error {
	return &cluster.UsageError{Message: fmt.Sprintf(format, args...)}
}

func (n *Nuke) connect() (err error) {
	d := n.options.Datacenter
	d.Endpoint = cmp.Or(d.Endpoint, n.options.DefaultEndpoint)
	switch {
	case d.Endpoint == "":
		return usageError("no endpoint: say where Proxmox is with --endpoint or PROXMOX_VE_ENDPOINT, " +
			"or --cluster of one that was recorded")
	case d.Token == "":
		return usageError("no API token: set PROXMOX_VE_API_TOKEN (a flag would show it to others), " +
			"or name a --cluster that was recorded")
	}
	if err = proxmox.CheckToken(d.Token); err == nil {
		n.client, err = proxmox.NewClient(d)
	}
	if err != nil {
		return &cluster.UsageError{Message: err.Error()}
	}
	n.Endpoint = d.Endpoint
	return nil
}

// ParseRange reads a range of ids: "421-432", or "421" for one.
func ParseRange(text string) (proxmox.Range, error) { return proxmox.ParseRange(text) }

// guest returns the guest with an id; nil if there is none.
func (n *Nuke) guest(id int) *Guest {
	i := slices.IndexFunc(n.Guests, func(g Guest) bool { return g.ID == id })
	if i < 0 {
		return nil
	}
	return &n.Guests[i]
}

// findDisks finds disks that no guest uses. A storage that it could not read is a remark: castle never
// reports a disk there as gone.
func (n *Nuke) findDisks(ctx context.Context) error {
	orphans, unseen, err := n.client.Orphans(ctx, n.options.Range, func(id int) string {
		if g := n.guest(id); g != nil && !g.Goes() {
			return fmt.Sprintf("guest %d stays", id)
		}
		return ""
	})
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil && n.options.Unreferenced:
		return n.noAnswer(err)
	case err != nil:
		n.Remarks = append(n.Remarks, fmt.Sprintf("which disks nothing uses could not be asked: %v", err))
	}
	n.Remarks = append(n.Remarks, unseen...)
	for _, o := range orphans {
		if g := n.guest(o.ID); g != nil && (g.subject.Hidden || g.subject.Unreadable != "") {
			continue // that guest's disks are unknown
		}
		o.Chosen = n.options.Unreferenced
		n.Disks = append(n.Disks, o)
	}
	return nil
}

// noAnswer adds a fix to an error of Proxmox.
func (n *Nuke) noAnswer(err error) error {
	if errors.Is(err, context.Canceled) {
		return err
	}
	fix := ""
	switch proxmox.KindOf(err) {
	case proxmox.Other:
		fix = fmt.Sprintf("; is %s the right endpoint (--endpoint, PROXMOX_VE_ENDPOINT), can it be reached "+
			"from here, and is its certificate known (--ca-file)?", n.Endpoint)
	case proxmox.Unauthorized:
		fix = fmt.Sprintf("; %s does not know the API token: set another in PROXMOX_VE_API_TOKEN", n.Endpoint)
	case proxmox.Forbidden:
		fix = "; the API token lacks a privilege: give it one, or set another in PROXMOX_VE_API_TOKEN"
	}
	return fmt.Errorf("%w\n  nothing was deleted%s", err, fix)
}

// NothingToDo reports whether Run would change nothing.
func (n *Nuke) NothingToDo() bool {
	return !slices.ContainsFunc(n.Guests, Guest.Goes) && !slices.ContainsFunc(n.Disks, Disk.Goes) &&
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
	defer func() { err = errors.Join(err, n.unlock(ctx)) }()
	if ctx, err = n.lock(ctx, report); err != nil {
		return err
	}
	journal, err := state.NewDeletions(n.root)
	if err != nil {
		return err
	}
	n.Journal = journal.Path
	defer func() { err = errors.Join(err, journal.Close()) }()
	err = n.delete(ctx, &proxmox.Removal{Client: n.client, Ownership: n.ownership,
		Note: func(s proxmox.Step) error {
			if text := s.String(); text != "" {
				report(text)
			}
			return journal.Append(s)
		}})
	var taken map[int]bool
	if err == nil {
		taken, err = n.verify(ctx)
	}
	if err != nil {
		for i := range n.States {
			n.States[i].Stays = cmp.Or(n.States[i].Stays, "the nuke did not come to its end")
		}
		return errors.Join(err, n.Left())
	}
	return errors.Join(n.archive(ctx, taken, report, journal), n.Left())
}

// delete deletes the guests, then the disks.
func (n *Nuke) delete(ctx context.Context, removal *proxmox.Removal) error {
	for i := range n.Guests {
		g := &n.Guests[i]
		if !g.Goes() {
			continue
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		remains, err := removal.Remove(ctx, g.subject)
		g.Deleted = remains.Gone
		for _, volume := range remains.Unreferenced {
			if !slices.ContainsFunc(n.Disks, func(d Disk) bool { return d.Volume == volume }) {
				n.Remarks = append(n.Remarks, fmt.Sprintf(
					"%s carries VM %d's id, but its configuration did not name it; it is left", volume, g.ID))
			}
		}
		if err == nil && len(remains.Own) > 0 {
			err = &run.LeftoverError{Left: remains.Own, After: "nuke"}
		}
		if err != nil {
			return err
		}
	}
	for i := range n.Disks {
		d := &n.Disks[i]
		if !d.Goes() {
			continue
		}
		if err := removal.Free(ctx, *d); err != nil {
			return err
		}
		d.Deleted = true
	}
	return nil
}

// verify reads for every id in the range whether a guest has it. A guest that appeared meanwhile counts
// as refused.
func (n *Nuke) verify(ctx context.Context) (map[int]bool, error) {
	var ids []int
	homes := map[int]string{}
	for id := n.options.Range.From; id <= n.options.Range.To; id++ {
		ids = append(ids, id)
		if g := n.guest(id); g != nil && g.Kind == "qemu" {
			homes[id] = g.Node
		}
	}
	found, err := n.client.GuestsOn(ctx, ids, homes)
	if err != nil {
		return nil, err
	}
	taken := map[int]bool{}
	for _, id := range ids {
		_, taken[id] = found[id]
		if g := n.guest(id); taken[id] && (g == nil || g.Deleted) {
			n.Guests = append(n.Guests,
				Guest{ID: id, Refused: []string{"appeared while others were deleted"}})
		}
	}
	return taken, nil
}
