package castle

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/proxmox"
	"github.com/ephemeral-castle/castle/internal/state"
)

// Forgetting is what would be removed from a stage's state.
type Forgetting struct {
	Stage, Layer string
	Resources    []string // what castle would not know any more, in words

	addresses []string        // as they were asked for
	instances []string        // what they stand for
	things    []proxmox.Owned // what a destroy would ask the datacenter for
	held      []string        // addresses that a destroy has taken out of the state and not proved
	sum       string
}

// Forgettable returns what Forget would remove; nothing is changed. An address
// stands for what Terraform takes it for: a resource with all its instances, a
// module with all its resources. What a destroy has left over is in no state any
// more, and is called what the destroy has called it: 421, local:421/disk.raw.
// One that neither is known of is refused, and so is a state that cannot be read or that Terraform could not write.
func (c *Castle) Forgettable(stage string, addresses []string) (*Forgetting, error) {
	p, err := c.oneRemembered(stage)
	if err != nil {
		return nil, err
	}
	dir := c.dir.Stage(p.name)
	if err := c.sound(p.name); err != nil {
		return nil, err
	}
	sum, err := dir.StateDigest()
	if err != nil {
		return nil, err
	}
	st, err := dir.State()
	if err != nil {
		return nil, c.conceal(err)
	}
	c.hideState(st)
	owned, err := ownedBy(dir)
	if err != nil {
		return nil, err
	}
	held, err := heldBy(dir)
	if err != nil {
		return nil, err
	}
	f := &Forgetting{Stage: p.name, Layer: p.layer, sum: sum}
	for _, address := range addresses {
		if i := slices.IndexFunc(owned, func(t proxmox.Owned) bool { return t.ID() == address }); i >= 0 {
			f.things = append(f.things, owned[i])
			f.Resources = append(f.Resources, fmt.Sprintf("%s %s on node %s", owned[i].Kind, address, owned[i].Node))
			continue
		}
		if slices.Contains(held, address) && !st.Has(address) {
			f.held, f.Resources = append(f.held, address), append(f.Resources, address)
			continue
		}
		if err := c.match(st, f, address); err != nil {
			return nil, c.conceal(err)
		}
		f.addresses = append(f.addresses, address)
	}
	for _, k := range known(st) {
		if slices.Contains(f.instances, k.Address) {
			f.things = append(f.things, proxmox.OwnedBy([]gate.Known{k})...)
		}
	}
	return f, nil
}

// Restorable reports whether a snapshot of the state leads back.
func (f *Forgetting) Restorable() bool { return len(f.instances) > 0 }

// sound refuses a state that a run would have to repair first: only create and
// destroy do so by themselves.
func (c *Castle) sound(stage string) error {
	if err := c.dir.Stage(stage).CheckState(); err != nil {
		return c.conceal(fmt.Errorf("stage %s: %w", stage, err))
	}
	return nil
}

func (c *Castle) match(st *state.State, f *Forgetting, address string) error {
	known, found := map[string]bool{}, false
	for _, res := range st.Resources {
		resource, _, _ := strings.Cut(res.Address, "[")
		known[res.Address], known[resource] = true, true
		if res.Address != address && !strings.HasPrefix(res.Address, address+"[") && !strings.HasPrefix(res.Address, address+".") {
			continue
		}
		found = true
		if !slices.Contains(f.instances, res.Address) {
			f.instances = append(f.instances, res.Address)
			f.Resources = append(f.Resources, c.masker.Hide(describe(res)))
		}
	}
	if found {
		return nil
	}
	var names []string
	for name := range known {
		names = append(names, name)
	}
	return &UsageError{Message: fmt.Sprintf("stage %s: the state knows no %s%s\n  `castle state show %s %s` lists what it knows",
		f.Stage, address, config.DidYouMean(address, names), c.cluster.Name, f.Stage)}
}

// describe names a resource; of a virtual machine it says which one it is.
func describe(res state.Resource) string {
	id, ok := res.Attributes["vm_id"].(float64)
	if !ok {
		return res.Address
	}
	text := fmt.Sprintf("%s (VM %d", res.Address, int(id))
	if node, ok := res.Attributes["node_name"].(string); ok {
		text += " on node " + node
	}
	return text + ")"
}

// Forget carries out a Forgetting with Terraform's own state rm, under the
// cluster's lock and with a snapshot before and after, unless the state has
// changed since it was made.
func (c *Castle) Forget(ctx context.Context, f *Forgetting) (err error) {
	r, err := c.begin(ctx, "forget")
	if err != nil {
		return err
	}
	defer func() { err = r.end(err) }()
	dir := r.dir.Stage(f.Stage)
	if err := errors.Join(unchanged(dir, f.Stage, f.sum), r.sound(f.Stage)); err != nil {
		return err
	}
	if f.Restorable() {
		if err := r.forget(ctx, dir, f); err != nil {
			return r.failed(ctx, f.Layer, f.Stage, err)
		}
	}
	if err := errors.Join(disown(dir, f.things), letLoose(dir, append(f.held, f.instances...))); err != nil {
		return err
	}
	r.notice(fmt.Sprintf("stage %s: forgotten: %s", f.Stage, strings.Join(f.Resources, ", ")))
	return nil
}

func (r *run) forget(ctx context.Context, dir *state.Stage, f *Forgetting) (err error) {
	rec, err := dir.Record()
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("a killed run has left no record of it; `%s` completes it: %w", r.command("create"), err)
		}
		return err
	}
	work, err := r.recordedWork(ctx, rec)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, work.Close()) }()
	// The fingerprint stays: it has the state as it was, so that the stage is stale.
	if err := errors.Join(dir.Snapshot(), dir.Intent().Settle()); err != nil {
		return err
	}
	// The snapshot is the backup. Terraform insists on one of its own.
	backup := filepath.Join(work.root.Dir, "castle.backup")
	args := append([]string{"state", "rm", "-backup=" + backup}, f.addresses...)
	err = during("state rm", r.step(f.Stage, f.Layer, "state rm", func() error {
		code, err := work.root.Exec(ctx, args, strings.NewReader(""), work.root.Log, work.root.Log)
		if err == nil && code != 0 {
			err = fmt.Errorf("exit code %d", code)
		}
		return err
	}))
	if err = errors.Join(err, dir.Snapshot()); err != nil {
		return err
	}
	if err := os.Remove(backup); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return forgotten(dir, f)
}

// forgotten asks the state itself whether it knows any of it still.
func forgotten(dir *state.Stage, f *Forgetting) error {
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
