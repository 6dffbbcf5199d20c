package nuke

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/proxmox"
	"github.com/ephemeral-castle/castle/internal/run/recovery"
	"github.com/ephemeral-castle/castle/internal/state"
)

// recordedCluster holds the state directory's records of a cluster's machines.
type recordedCluster struct {
	name       string // blue/proxmox
	dir        *state.Dir
	datacenter proxmox.Options
	endpoints  []string
	ids        []int
	machinesOf map[int]proxmox.Owned // their recorded identities, by id
	unclear    string                // why ids may not be all of them
	stages     []*recordedStage
	roots      []string // the stages that own machines
}

// recordedStage is a stage of a cluster, by its record and its state.
type recordedStage struct {
	Record state.Record
	state  *state.State
}

// recordedClusters reads all clusters below a state root. An unreadable one does not stop the others: its
// unclear field gives the reason.
func recordedClusters(root string) ([]*recordedCluster, error) {
	names, err := state.Clusters(root)
	if err != nil {
		return nil, err
	}
	var all []*recordedCluster
	for _, name := range names {
		cluster, platform, _ := strings.Cut(name, "/")
		c := &recordedCluster{name: name, machinesOf: map[int]proxmox.Owned{}}
		if c.dir, err = state.Open(root, cluster, platform); err == nil {
			err = c.read()
		}
		if err != nil {
			c.unclear = err.Error()
		}
		all = append(all, c)
	}
	return all, nil
}

// read collects a cluster's machines from the recorded preflights and from the states, as either may lack
// one.
func (c *recordedCluster) read() error {
	names, err := c.dir.Stages()
	if err != nil {
		return err
	}
	var unclear error
	for _, name := range names {
		d := &recordedStage{Record: state.Record{Name: name}}
		rec, err := c.dir.Stage(name).Record()
		if err == nil {
			d.Record = rec
		} else if !errors.Is(err, fs.ErrNotExist) {
			unclear = errors.Join(unclear, err)
		}
		if d.state, err = c.dir.Stage(name).LastKnown(); err != nil {
			unclear = errors.Join(unclear, err)
			d.state = &state.State{}
		}
		if d.state.Notice != "" { // an older state may lack a machine
			unclear = errors.Join(unclear, fmt.Errorf("stage %s: %s", name, d.state.Notice))
		}
		c.stages = append(c.stages, d)
		unclear = errors.Join(unclear, c.machines(d), c.readMachines(d))
	}
	slices.Sort(c.ids)
	c.ids = slices.Compact(c.ids)
	return unclear
}

func (c *recordedCluster) machines(d *recordedStage) error {
	asked, err := cluster.Datacenters(d.Record)
	if err != nil {
		return err
	}
	has := len(asked) > 0
	for _, one := range asked {
		c.datacenter = one.Options
		c.endpoints = append(c.endpoints, one.Options.Endpoint)
		c.ids = append(c.ids, one.Ids...)
	}
	for _, res := range d.state.Managed() {
		id, isGuest := proxmox.GuestID(res.Type, res.Attributes)
		switch {
		case isGuest && id == 0:
			return fmt.Errorf("the id of %s is not known", res.Address)
		case isGuest:
			has = true
			c.ids = append(c.ids, id)
		}
	}
	if has {
		c.roots = append(c.roots, d.Record.Name)
	}
	return nil
}

// readMachines reads the identities of a stage's machines.
func (c *recordedCluster) readMachines(d *recordedStage) error {
	ids, err := cluster.MachineIDs(c.dir.Stage(d.Record.Name))
	if err != nil {
		return err
	}
	for _, m := range ids { // also machines that the state has lost
		if id, err := strconv.Atoi(m.ID); err == nil {
			c.machinesOf[id] = proxmox.Owned{Kind: proxmox.Machine, VM: id, UUID: m.UUID}
		}
	}
	for _, t := range proxmox.OwnedBy(cluster.Known(d.state, ids...)) {
		if t.Kind == proxmox.Machine {
			c.machinesOf[t.VM] = t
		}
	}
	return nil
}

// ended returns the stages that end with the machines: those that own machines and, unless persistent,
// those that need one of these. Stages with machines come last, so that an interrupted nuke finds them
// again.
func (c *recordedCluster) ended() []*recordedStage {
	gone := map[string]bool{}
	for _, name := range c.roots {
		gone[name] = true
	}
	for grown := true; grown; {
		grown = false
		for _, d := range c.stages {
			needs := slices.ContainsFunc(d.Record.Needs, func(need string) bool { return gone[need] })
			if !gone[d.Record.Name] && !d.Record.Persistent && needs {
				gone[d.Record.Name], grown = true, true
			}
		}
	}
	var above, roots []*recordedStage
	for _, d := range c.stages {
		switch {
		case slices.Contains(c.roots, d.Record.Name):
			roots = append(roots, d)
		case gone[d.Record.Name]:
			above = append(above, d)
		}
	}
	return append(above, roots...)
}

// outside lists the stage's resources that still exist when the machines are gone.
func (d *recordedStage) outside() []string {
	var left []string
	for _, res := range d.state.Managed() {
		_, isGuest := proxmox.GuestID(res.Type, res.Attributes)
		if !isGuest && !recovery.InMachines(res.Provider) &&
			!slices.Contains(d.Record.InCluster, res.Provider) {
			left = append(left, res.Address)
		}
	}
	return left
}

// archive archives stages and removes the cluster's kubeconfig and talosconfig, with their copies in a
// known repository.
func (c *recordedCluster) archive(stages []string, run, repository string) error {
	for _, path := range []string{c.dir.Kubeconfig(), c.dir.Talosconfig()} {
		content, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		export := filepath.Join(repository, "clusters", filepath.FromSlash(c.name), "configs",
			filepath.Base(path))
		if copied, err := os.ReadFile(export); repository != "" && err == nil &&
			bytes.Equal(copied, content) {
			if err := os.Remove(export); err != nil {
				return err
			}
		}
		if err := os.Remove(path); err != nil {
			return err
		}
	}
	for _, stage := range stages {
		if err := c.dir.Stage(stage).Archive(run); err != nil {
			return err
		}
	}
	return c.dir.Recreation().Clear()
}
