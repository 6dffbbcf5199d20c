// Package nuke deletes the machines of a range of VM ids, or what is labelled as a cluster's, without any
// state. It then archives the states whose machines are all verified as gone.
package nuke

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/platform"
	"github.com/ephemeral-castle/castle/internal/run"
	"github.com/ephemeral-castle/castle/internal/state"
	"github.com/ephemeral-castle/castle/internal/store"
)

// Options select the ids to delete and the datacenter that has them.
type Options struct {
	StateDir string   // --state-dir; empty: from Environ
	Environ  []string // the caller's environment
	Version  string   // castle's own
	// Repository is where kubeconfigs are removed, and castle.hcl names the store of states; empty: nowhere.
	Repository string
	Range      platform.Range    // zero: what has the labels of Cluster
	Platform   platform.Platform // whose machines
	// Cluster limits the nuke to one cluster's machines, and completes
	// Datacenter from its record: "blue" or "blue/proxmox".
	Cluster string
	Foreign []int // ids to delete though nothing marks them as castle's
	// Unreferenced also deletes disks that carry an id of the range and that no guest uses.
	Unreferenced bool
	Datacenter   platform.Account
	// DefaultEndpoint applies if neither Datacenter nor Cluster names one: a named
	// cluster has priority over the shell's environment.
	DefaultEndpoint string
}

// Nuke lists the objects that castle would delete in a range of ids, found without any state.
type Nuke struct {
	Range    string            `json:"range,omitempty"`
	Cluster  string            `json:"cluster,omitempty"` // whose labels count, without a range
	Endpoint string            `json:"endpoint"`
	Disks    []platform.Orphan `json:"disks"` // that no guest uses
	Guests   []platform.Guest  `json:"guests"`
	States   []State           `json:"states"`
	Journal  string            `json:"journal,omitempty"`
	Remarks  []string          `json:"remarks,omitempty"` // further notes for the user
	options  Options           // completed
	root     string            // of all state directories
	store    *cluster.StateStore
	client   platform.Nuke
	signs    platform.Signs
	note     func(line any, text string) error // while it runs
}

// Survey reads every guest in the range and the clusters whose machines have ids there. It changes nothing.
func Survey(ctx context.Context, o Options) (*Nuke, error) {
	root, err := state.Root(o.StateDir, o.Environ)
	if err != nil {
		return nil, err
	}
	n := &Nuke{Guests: []platform.Guest{}, Disks: []platform.Orphan{}, options: o, root: root}
	if !n.byLabels() {
		n.Range = o.Range.String()
	}
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
	n.signs = platform.Signs{Range: o.Range, Foreign: o.Foreign, Keys: map[string]string{}}
	if o.Cluster != "" {
		if err := n.choose(recorded); err != nil {
			return nil, err
		}
	}
	if err := n.address(); err != nil {
		return nil, err
	}
	for _, c := range recorded {
		if name, _, _ := strings.Cut(c.name, "/"); c.elsewhere(n.Endpoint) == "" && c.dir != nil {
			n.signs.Keys[name] = cmp.Or(cluster.MachineKey(c.dir), n.signs.Keys[name])
		}
		if len(c.endpoints) == 0 || c.elsewhere(n.Endpoint) != "" {
			continue
		}
		for _, machine := range c.machinesOf {
			n.signs.Known = append(n.signs.Known, platform.RecordedMachine{Cluster: c.name, Machine: machine})
		}
	}
	if err := n.connect(); err != nil {
		return nil, err
	}
	if n.Guests, err = n.client.Survey(ctx); err != nil {
		return nil, n.noAnswer(err)
	}
	n.States = n.affectedStates(recorded)
	return n, n.findDisks(ctx)
}

// byLabels reports whether the nuke goes by the labels of a cluster, and not by ids.
func (n *Nuke) byLabels() bool { return n.options.Range == platform.Range{} }

// choose finds the named cluster and completes the options from its record. Labels need no record.
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
	isOther := func(c *recordedCluster) bool { return !c.standsOn(n.options.Platform) }
	if others := len(found); slices.ContainsFunc(found, isOther) {
		if found = slices.DeleteFunc(found, isOther); len(found) == 0 && others > 0 {
			return cluster.Usagef("--cluster %s: it does not stand on %s; machines of Proxmox are deleted "+
				"with --vmid-range, and those of Hetzner Cloud without it", n.options.Cluster,
				n.options.Platform.Name())
		}
	}
	n.signs.Cluster, _, _ = strings.Cut(n.options.Cluster, "/")
	if n.byLabels() {
		n.Cluster = n.signs.Cluster
	}
	switch {
	case len(found) == 0 && n.byLabels():
		return nil
	case len(names) == 0:
		return cluster.Usagef("--cluster %s: nothing is recorded of any cluster; give the endpoint and the "+
			"token instead", n.options.Cluster)
	case len(found) != 1:
		return cluster.Usagef("--cluster %s: there are %s", n.options.Cluster, strings.Join(names, ", "))
	}
	have, given := found[0].datacenter, &n.options.Datacenter
	given.Endpoint = cmp.Or(given.Endpoint, have.Endpoint)
	if !n.options.Platform.SameEndpoint(given.Endpoint, have.Endpoint) {
		return nil // never send a recorded token to another endpoint
	}
	given.Token = cmp.Or(given.Token, have.Token)
	if given.CA == "" && !given.Insecure {
		given.CA, given.Insecure = have.CA, have.Insecure
	}
	return nil
}

// address completes the endpoint.
func (n *Nuke) address() error {
	d := &n.options.Datacenter
	d.Endpoint = cmp.Or(d.Endpoint, n.options.DefaultEndpoint)
	endpoint, token := n.options.Platform.Variables()
	switch {
	case d.Endpoint == "":
		return cluster.Usagef("no endpoint: say where %s is with --endpoint or %s, or --cluster of one that "+
			"was recorded", n.options.Platform.Name(), endpoint)
	case d.Token == "":
		return cluster.Usagef(
			"no API token: set %s (a flag would show it to others), or name a --cluster that was "+
				"recorded", token)
	}
	n.Endpoint = d.Endpoint
	return nil
}

// connect makes the client, with all signs.
func (n *Nuke) connect() (err error) {
	if err = n.options.Platform.CheckToken(n.options.Datacenter.Token); err == nil {
		n.client, err = n.options.Platform.Nuke(n.options.Datacenter, n.signs,
			func(line any, text string) error { return n.note(line, text) })
	}
	if err != nil {
		return &cluster.UsageError{Message: err.Error()}
	}
	return nil
}

// guest returns the guest with an id; nil if there is none.
func (n *Nuke) guest(id int) *platform.Guest {
	i := slices.IndexFunc(n.Guests, func(g platform.Guest) bool { return g.ID == id })
	if i < 0 {
		return nil
	}
	return &n.Guests[i]
}

// findDisks finds disks that no guest uses. A storage that it could not read is a remark.
func (n *Nuke) findDisks(ctx context.Context) error {
	orphans, unseen, err := n.client.Disks(ctx, func(id int) string {
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
		if g := n.guest(o.ID); g != nil && g.Unread {
			continue // that guest's disks are unknown
		}
		o.Chosen = n.options.Unreferenced
		n.Disks = append(n.Disks, o)
	}
	return nil
}

// noAnswer adds a fix to an error of the datacenter.
func (n *Nuke) noAnswer(err error) error {
	if errors.Is(err, context.Canceled) {
		return err
	}
	fix := n.client.Advice(err)
	if fix != "" {
		fix = "; " + fix
	}
	return fmt.Errorf("%w\n  nothing was deleted%s", err, fix)
}

// NothingToDo reports whether Run would change nothing.
func (n *Nuke) NothingToDo() bool {
	return !slices.ContainsFunc(n.Guests, platform.Guest.Goes) && !slices.ContainsFunc(n.Disks,
		platform.Orphan.Goes) &&
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
	n.note = func(line any, text string) error {
		if text != "" {
			report(text)
		}
		return journal.Append(line)
	}
	err = n.delete(ctx)
	var remaining []platform.Guest
	if err == nil {
		remaining, err = n.verify(ctx)
	}
	if err != nil {
		for i := range n.States {
			n.States[i].Stays = cmp.Or(n.States[i].Stays, "the nuke did not come to its end")
		}
		return errors.Join(err, n.Left())
	}
	return errors.Join(n.archive(ctx, remaining, report, journal), n.Left())
}

// delete deletes the guests, then the disks.
func (n *Nuke) delete(ctx context.Context) error {
	for i := range n.Guests {
		g := &n.Guests[i]
		if !g.Goes() {
			continue
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		remains, err := n.client.Remove(ctx, *g)
		g.Deleted = remains.Gone
		for _, volume := range remains.Unreferenced {
			if !slices.ContainsFunc(n.Disks, func(d platform.Orphan) bool { return d.Volume == volume }) {
				n.Remarks = append(n.Remarks, fmt.Sprintf(
					"%s carries the id of %s, but its configuration did not name it; it is left", volume,
					g.Called))
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
		if err := n.client.Free(ctx, *d); err != nil {
			return err
		}
		d.Deleted = true
	}
	return nil
}

// verify lists the guests that there are now. One that appeared meanwhile counts as refused.
func (n *Nuke) verify(ctx context.Context) ([]platform.Guest, error) {
	remaining, err := n.client.Remaining(ctx)
	for _, g := range remaining {
		i := slices.IndexFunc(n.Guests, func(known platform.Guest) bool { return known.Called == g.Called })
		if i < 0 || n.Guests[i].Deleted {
			g.Refused = []string{"appeared while others were deleted"}
			n.Guests = append(n.Guests, g)
		}
	}
	return remaining, err
}
