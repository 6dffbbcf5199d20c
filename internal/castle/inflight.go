package castle

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/event"
	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/kube"
	"github.com/ephemeral-castle/castle/internal/proxmox"
	"github.com/ephemeral-castle/castle/internal/state"
	"github.com/ephemeral-castle/castle/internal/terraform"
)

// What was being made when a run was cut short is looked for by the next one,
// whether it creates or destroys, and what exists becomes the stage's own by a
// `terraform import`. From then on it is changed, replaced or destroyed like
// everything else. Machines are the one exception: the preflights find those, by
// more than their id.

// inFlight is what a stage's intent says that its state does not know, as far as
// it can be anywhere but in the state.
func inFlight(dir *state.Stage, st *state.State) ([]state.Intended, error) {
	intent, err := dir.Intent().Read()
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(intent.InFlight(st.Has), func(c state.Intended) bool { return isMachine(c.Type) || endsWithState(c.Type) }), nil
}

// endsWithState reports whether resources of a type are nowhere but in the state,
// or in machines that end by themselves.
func endsWithState(typ string) bool {
	name, _, _ := strings.Cut(typ, "_")
	return slices.Contains([]string{"terraform", "random", "tls", "talos"}, name)
}

// importLost imports what is in flight of a stage and exists. work holds the
// stage's module.
func (r *run) importLost(ctx context.Context, at place, work *workshop, lost []state.Intended, o outside) error {
	for _, c := range lost {
		if err := r.importIfThere(ctx, at, work, c, o); err != nil {
			return fmt.Errorf("%s was being made by a run that was cut short: %w", c.Address, err)
		}
	}
	return nil
}

func (r *run) importIfThere(ctx context.Context, at place, work *workshop, c state.Intended, o outside) error {
	if c.ID == "" {
		r.notice(fmt.Sprintf("%s may have been made by a run that was cut short, and castle does not know how to look for it", c.Address))
		return nil
	}
	yes, err := o.has(ctx, c.Type, c.ID, r.notice)
	if errors.Is(err, errUnasked) {
		yes, err = true, nil // Terraform will say so
	}
	if err != nil || !yes {
		return err
	}
	err = r.step(at.name, at.layer, "import", func() error {
		err := work.root.Import(ctx, c.Address, c.ID)
		if errors.Is(err, terraform.ErrNotConfigured) {
			err = r.importRecorded(ctx, at, work, c)
		}
		if errors.Is(err, terraform.ErrNoSuchObject) {
			yes, err = false, nil
		}
		return err
	})
	if err != nil || !yes {
		return err
	}
	r.emit(event.Event{Kind: event.Resource, Layer: at.layer, Stage: at.name, Address: c.Address, Action: "import", Text: c.ID})
	r.notice(fmt.Sprintf("%s (%s) was made by a run that was killed; it is taken over", c.Address, c.ID))
	return nil
}

// importRecorded imports what only the module that made it knows: the
// configuration has changed since. That module stays in the work directory.
func (r *run) importRecorded(ctx context.Context, at place, work *workshop, c state.Intended) error {
	rec, err := r.dir.Stage(at.name).Record()
	if err != nil {
		return err
	}
	if err := r.materialiseRecorded(ctx, rec, work); err != nil {
		return err
	}
	return work.root.Import(ctx, c.Address, c.ID)
}

// takeIn takes into the state what a run that was cut short was making of a
// stage, and returns the state that follows from that. A release that is still
// pending is none yet: it is freed when it is planned.
func (r *creation) takeIn(ctx context.Context, s *config.Stage, work *workshop, override terraform.Override,
	before *state.State, pending []kube.PendingRelease) (*state.State, error) {
	dir := r.dir.Stage(s.Name)
	lost, err := inFlight(dir, before)
	if err != nil {
		return nil, err
	}
	lost = slices.DeleteFunc(lost, func(c state.Intended) bool {
		return slices.ContainsFunc(pending, func(p kube.PendingRelease) bool { return c.Type == "helm_release" && c.ID == p.Namespace+"/"+p.Name })
	})
	if len(lost) == 0 {
		return before, nil
	}
	if err := dir.Snapshot(); err != nil {
		return nil, err
	}
	if err := r.importLost(ctx, place{s.Name, s.Layer}, work, lost, r.outside(s)); err != nil {
		return nil, err
	}
	if err := work.root.Materialise(s.Module, override); err != nil { // it may hold another module now
		return nil, err
	}
	if err := work.root.Init(ctx); err != nil {
		return nil, err
	}
	return r.readState(dir)
}

// restate brings what is known of a stage up to date with its state.
func (r *destruction) restate(d *Doomed) (err error) {
	dir := r.dir.Stage(d.Record.Name)
	if d.state, err = r.readState(dir); err != nil {
		return err
	}
	d.Resources = d.managed()
	d.inFlight, err = inFlight(dir, d.state)
	return err
}

// targets are the addresses of what is to be destroyed by Terraform.
func (d *Doomed) targets() []string {
	if d.Collapses {
		return d.external()
	}
	return d.Resources
}

// lost is what is in flight and does not end with the cluster.
func (d *Doomed) lost() []state.Intended {
	return slices.DeleteFunc(slices.Clone(d.inFlight), func(c state.Intended) bool {
		return d.ended && isInCluster(c.Type, d.Record.InCluster)
	})
}

// takeIn takes into the state what a run that was cut short was making of a
// stage, so that it goes, too.
func (r *destruction) takeIn(ctx context.Context, d *Doomed, work *workshop, lost []state.Intended) error {
	if slices.ContainsFunc(lost, func(c state.Intended) bool { return isInCluster(c.Type, d.Record.InCluster) }) {
		if err := r.reachable(ctx); err != nil {
			return err
		}
	}
	kubeconfig, err := os.ReadFile(r.dir.Kubeconfig())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	o := outside{
		cluster: gate.Target{Kubeconfig: kubeconfig}, inCluster: d.Record.InCluster,
		datacenter: func() (*proxmox.Client, error) { return r.datacenter(d) },
	}
	if err := r.importLost(ctx, place{d.Record.Name, d.Record.Layer}, work, lost, o); err != nil {
		return err
	}
	return r.restate(d)
}

var version = regexp.MustCompile(`_v\d+((alpha|beta)\d+)?$`)

// kindOf is the kind of the objects that a type of the kubernetes provider stands for.
func kindOf(typ string) string {
	return version.ReplaceAllString(strings.TrimPrefix(typ, "kubernetes_"), "")
}
