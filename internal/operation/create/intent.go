package create

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/kube"
	"github.com/ephemeral-castle/castle/internal/proxmox"
	"github.com/ephemeral-castle/castle/internal/run"
	"github.com/ephemeral-castle/castle/internal/run/recovery"
	"github.com/ephemeral-castle/castle/internal/state"
	"github.com/ephemeral-castle/castle/internal/terraform"
)

// takeIn takes into the state what a run that was cut short was making of a
// stage, and returns the state that follows from that. A release that is still
// pending is none yet: it is freed when it is planned.
func (r *creation) importInterrupted(ctx context.Context, s *config.Stage, work *run.Workspace, override terraform.Override,
	before *state.State, pending []kube.PendingRelease) (*state.State, error) {
	dir := r.run.Cluster.Dir.Stage(s.Name)
	lost, err := recovery.InFlight(dir, before)
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
	if err := recovery.Import(ctx, r.run, cluster.StageRef{Name: s.Name, Layer: s.Layer}, work, lost, r.outside(s)); err != nil {
		return nil, err
	}
	if err := work.Root.Materialise(s.Module, override); err != nil { // it may hold another module now
		return nil, err
	}
	if err := work.Root.Init(ctx); err != nil {
		return nil, err
	}
	return r.run.ReadState(dir)
}

// intended is what is written of a plan that makes or changes these objects. What
// it is to make is looked for first: what is there already is somebody else's.
func (r *creation) intended(ctx context.Context, s *config.Stage, work *run.Workspace, objects []terraform.Object) []state.Intended {
	var all []state.Intended
	for _, o := range objects {
		c := state.Intended{Address: o.Address, Type: o.Type, Action: o.Action, ID: o.ID}
		if o.ID != "" && o.Action != "update" && !recovery.IsMachine(o.Type) {
			c.Before = r.before(ctx, s, work, o)
		}
		all = append(all, c)
	}
	return all
}

// before asks whether an object exists, if castle cannot then Terraform. Where
// there is no answer, nothing is said; should the run be killed, the object then
// counts as its own only if Terraform was heard to begin with it.
func (r *creation) before(ctx context.Context, s *config.Stage, work *run.Workspace, o terraform.Object) state.Before {
	adopted := func(a *config.Adopt) bool { return a.Address == o.Address }
	if o.ID == o.WasID || slices.ContainsFunc(s.Adopts, adopted) {
		return state.Absent // its own goes first, or it is taken wherever it comes from
	}
	yes, err := r.outside(s).Has(ctx, o.Type, o.ID, func(string) {})
	if errors.Is(err, recovery.ErrNoLookup) {
		yes, err = work.Root.Exists(ctx, o.Address, o.ID)
	}
	switch {
	case err != nil:
		r.run.Notice(fmt.Sprintf("%s: cannot ask whether %s exists: %v", s.Name, o.Address, err))
		return ""
	case yes:
		return state.Present
	}
	return state.Absent
}

func (r *creation) outside(s *config.Stage) recovery.Lookup {
	return recovery.Lookup{Cluster: r.run.Outputs.Target(), InCluster: s.InCluster, Datacenter: func() (*proxmox.Client, error) { return r.datacenterOf(s) }}
}

// datacenterOf makes a client of the datacenter that a stage's preflights ask.
func (r *creation) datacenterOf(s *config.Stage) (*proxmox.Client, error) {
	for _, p := range s.Preflights {
		if p.Type.Name != proxmox.PreflightVMIDs {
			continue
		}
		values, diags := p.Values(s, r.run.Outputs.Scope(s))
		if diags.HasErrors() {
			return nil, diags
		}
		return proxmox.ClientOf(values)
	}
	return nil, recovery.ErrNoLookup
}
