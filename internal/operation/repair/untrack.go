package repair

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/ownfile"
	"github.com/ephemeral-castle/castle/internal/platform"
	"github.com/ephemeral-castle/castle/internal/run"
	"github.com/ephemeral-castle/castle/internal/run/applied"
	"github.com/ephemeral-castle/castle/internal/state"
	"github.com/ephemeral-castle/castle/internal/syntax"
)

// UntrackPlan lists the objects that Untrack would remove from a stage's records.
type UntrackPlan struct {
	Stage, Layer string
	Resources    []string // what castle would no longer track, in words

	addresses []string          // as the user gave them
	instances []string          // that they select in the state
	objects   []platform.Object // that a destroy would look up in the datacenter
	held      []string          // addresses that a destroy removed from the state and did not verify
	sum       string
}

// PrepareUntrack returns the objects that Untrack would remove; it changes nothing. An address selects the
// same objects as in Terraform: all instances of a resource, all resources of a module. Leftovers of a
// destroy are in no state; the id in the destroy's message selects those. PrepareUntrack refuses unknown
// addresses, and states that are unreadable or that Terraform could not write.
func PrepareUntrack(c *cluster.Cluster, stage string, addresses []string) (*UntrackPlan, error) {
	p, err := c.RecordedStage(stage)
	if err != nil {
		return nil, err
	}
	dir := c.Dir.Stage(p.Name)
	if err := c.CheckState(p.Name); err != nil {
		return nil, err
	}
	sum, err := dir.StateDigest()
	if err != nil {
		return nil, err
	}
	st, err := dir.State()
	if err != nil {
		return nil, c.MaskError(err)
	}
	c.MaskOutputs(st)
	owned, err := cluster.Owned(dir).Value()
	if err != nil {
		return nil, err
	}
	held, err := cluster.Held(dir).Value()
	if err != nil {
		return nil, err
	}
	f := &UntrackPlan{Stage: p.Name, Layer: p.Layer, sum: sum}
	for _, address := range addresses {
		if i := slices.IndexFunc(owned, func(t platform.Object) bool { return t.ID() == address }); i >= 0 {
			f.objects = append(f.objects, owned[i])
			f.Resources = append(f.Resources,
				fmt.Sprintf("%s %s on node %s", owned[i].Kind, address, owned[i].Node))
			continue
		}
		if slices.Contains(held, address) && !st.Has(address) {
			f.held, f.Resources = append(f.held, address), append(f.Resources, address)
			continue
		}
		if err := match(c, st, f, address); err != nil {
			return nil, c.MaskError(err)
		}
		f.addresses = append(f.addresses, address)
	}
	for _, k := range cluster.Known(st) {
		if slices.Contains(f.instances, k.Address) {
			f.objects = append(f.objects, cluster.Platforms().ObjectsOf([]gate.Known{k})...)
		}
	}
	return f, nil
}

// Restorable reports whether a snapshot can restore the resources.
func (f *UntrackPlan) Restorable() bool { return len(f.instances) > 0 }

func match(c *cluster.Cluster, st *state.State, f *UntrackPlan, address string) error {
	known, found := map[string]bool{}, false
	for _, res := range st.Resources {
		resource, _, _ := strings.Cut(res.Address, "[")
		known[res.Address], known[resource] = true, true
		if res.Address != address && !strings.HasPrefix(res.Address, address+"[") &&
			!strings.HasPrefix(res.Address, address+".") {
			continue
		}
		found = true
		if !slices.Contains(f.instances, res.Address) {
			f.instances = append(f.instances, res.Address)
			f.Resources = append(f.Resources, c.Masker.Hide(describe(res)))
		}
	}
	if found {
		return nil
	}
	return &cluster.UsageError{Message: fmt.Sprintf(
		"stage %s: the state knows no %s%s\n  `castle state show %s %s` lists what it knows",
		f.Stage, address, syntax.DidYouMean(address, slices.Collect(maps.Keys(known))),
		c.Config.Name, f.Stage)}
}

// describe names a resource; for a machine it adds what its platform calls it.
func describe(res state.Resource) string {
	of := cluster.Platforms().OfResource(res.Type)
	if of == nil {
		return res.Address
	}
	machine, _ := of.Describe(res.Attributes)
	return res.Address + " (" + machine + ")"
}

// Untrack carries out an UntrackPlan with Terraform's own state rm, under the cluster's lock. It
// snapshots the state before and after, and refuses a state that has changed since PrepareUntrack.
func Untrack(ctx context.Context, c *cluster.Cluster, f *UntrackPlan) (err error) {
	ctx, r, err := run.Begin(ctx, c, "forget", applied.CleanUp)
	if err != nil {
		return err
	}
	defer func() { err = r.End(err) }()
	dir := r.Cluster.Dir.Stage(f.Stage)
	if err := errors.Join(unchanged(dir, f.Stage, f.sum), r.Cluster.CheckState(f.Stage)); err != nil {
		return err
	}
	if f.Restorable() {
		if err := untrack(ctx, r, dir, f); err != nil {
			return r.Failed(ctx, f.Layer, f.Stage, err)
		}
	}
	err = cluster.UntrackOwned(dir, f.objects)
	if err = errors.Join(err, cluster.UntrackHeld(dir, append(f.held, f.instances...))); err != nil {
		return err
	}
	r.Notice(fmt.Sprintf("stage %s: forgotten: %s", f.Stage, strings.Join(f.Resources, ", ")))
	return nil
}

func untrack(ctx context.Context, r *run.Run, dir *state.Stage, f *UntrackPlan) (err error) {
	rec, err := dir.Record()
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("a killed run has left no record of it; `%s` completes it: %w",
			r.Cluster.Command("create"), err)
	}
	if err != nil {
		return err
	}
	work, err := r.RecordedWorkspace(ctx, rec)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, work.Close()) }()
	// The fingerprint stays: it has the state as it was, so that the stage is stale.
	if err := errors.Join(dir.Snapshot(), dir.Intent().Settle()); err != nil {
		return err
	}
	// The snapshot is the backup. Terraform insists on one of its own.
	backup := filepath.Join(work.Root.Dir, "castle.backup")
	args := append([]string{"state", "rm", "-backup=" + backup}, f.addresses...)
	err = run.During("state rm", r.Step(f.Stage, f.Layer, "state rm", func() error {
		code, err := work.Root.Exec(ctx, args, strings.NewReader(""), work.Root.Log, work.Root.Log)
		if err == nil && code != 0 {
			err = fmt.Errorf("exit code %d", code)
		}
		return err
	}))
	if err = errors.Join(err, dir.Snapshot(), ownfile.RemoveAll(backup)); err != nil {
		return err
	}
	st, err := dir.State()
	if err != nil {
		return err
	}
	for _, res := range st.Resources {
		if slices.Contains(f.instances, res.Address) {
			return fmt.Errorf("the state still knows %s", res.Address)
		}
	}
	return nil
}
