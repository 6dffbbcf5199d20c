package castle

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/kube"
	"github.com/ephemeral-castle/castle/internal/proxmox"
	"github.com/ephemeral-castle/castle/internal/state"
	"github.com/ephemeral-castle/castle/internal/terraform"
)

// apply carries out a plan, or without one whatever the configuration says, under
// an intent that is on the disk before anything is changed. The intent goes when
// the apply has come to its end and there is a copy of the state that it led to; a
// failed one may have lost something, too.
func (w *workshop) apply(ctx context.Context, r *run, dir *state.Stage, plan *terraform.Plan, changes []state.Intended) error {
	intent, err := dir.Intent().Begin(r.id, changes)
	if err != nil {
		if plan != nil {
			err = errors.Join(err, plan.Discard())
		}
		return fmt.Errorf("what is about to be changed cannot be written down, so nothing was changed: %w", err)
	}
	w.intent.Store(intent)
	err = w.root.Apply(ctx, plan)
	w.intent.Store(nil)
	noted := intent.Close()
	if err = errors.Join(err, dir.Snapshot()); err != nil {
		return errors.Join(err, noted)
	}
	return dir.Intent().Clear()
}

// note keeps in the intent how far a change has come.
func (w *workshop) note(c terraform.Change) {
	intent := w.intent.Load()
	phases := map[terraform.Phase]state.Phase{
		terraform.Started: state.Started, terraform.Done: state.Done, terraform.Failed: state.Failed,
	}
	if phase := phases[c.Phase]; intent != nil && phase != "" {
		intent.Note(c.Address, c.Action, phase)
	}
}

// doubt keeps in the intent that a failed change may have made something all the
// same: the answer may have been lost, or Terraform was interrupted.
func (w *workshop) doubt(d terraform.Diagnostic) {
	if intent := w.intent.Load(); intent != nil && d.Address != "" && !d.AlreadyExists() {
		intent.Note(d.Address, "create", state.Unsure)
	}
}

// intended is what is written of a plan that makes or changes these objects. What
// it is to make is looked for first: what is there already is somebody else's.
func (r *creation) intended(ctx context.Context, s *config.Stage, work *workshop, objects []terraform.Object) []state.Intended {
	var all []state.Intended
	for _, o := range objects {
		c := state.Intended{Address: o.Address, Type: o.Type, Action: o.Action, ID: o.ID}
		if o.ID != "" && o.Action != "update" && !isMachine(o.Type) {
			c.Before = r.before(ctx, s, work, o)
		}
		all = append(all, c)
	}
	return all
}

// before asks whether an object exists, if castle cannot then Terraform. Where
// there is no answer, nothing is said; should the run be killed, the object then
// counts as its own only if Terraform was heard to begin with it.
func (r *creation) before(ctx context.Context, s *config.Stage, work *workshop, o terraform.Object) state.Before {
	adopted := func(a *config.Adopt) bool { return a.Address == o.Address }
	if o.ID == o.WasID || slices.ContainsFunc(s.Adopts, adopted) {
		return state.Absent // its own goes first, or it is taken wherever it comes from
	}
	yes, err := r.outside(s).has(ctx, o.Type, o.ID, func(string) {})
	if errors.Is(err, errUnasked) {
		yes, err = work.root.Exists(ctx, o.Address, o.ID)
	}
	switch {
	case err != nil:
		r.notice(fmt.Sprintf("%s: cannot ask whether %s exists: %v", s.Name, o.Address, err))
		return ""
	case yes:
		return state.Present
	}
	return state.Absent
}

func (r *creation) outside(s *config.Stage) outside {
	return outside{cluster: r.said.target(), inCluster: s.InCluster, datacenter: func() (*proxmox.Client, error) { return r.datacenterOf(s) }}
}

// datacenterOf makes a client of the datacenter that a stage's preflights ask.
func (r *creation) datacenterOf(s *config.Stage) (*proxmox.Client, error) {
	for _, p := range s.Preflights {
		if p.Type.Name != proxmox.PreflightVMIDs {
			continue
		}
		values, diags := p.Values(s, r.said.scope(s))
		if diags.HasErrors() {
			return nil, diags
		}
		return proxmox.ClientOf(values)
	}
	return nil, errUnasked
}

// outside is where the objects of a stage are, as far as castle can ask for them.
type outside struct {
	cluster    gate.Target
	inCluster  []string // source addresses of the providers that castle wires to it
	datacenter func() (*proxmox.Client, error)
}

// errUnasked says that castle does not know whom to ask for an object.
var errUnasked = errors.New("nobody can be asked")

// has reports whether an object exists, by what `terraform import` takes it by.
// One that is being made is waited for, and report is told so.
func (o outside) has(ctx context.Context, typ, id string, report func(string)) (bool, error) {
	first, second, both := strings.Cut(id, "/")
	switch {
	case isDownload(typ):
		client, err := o.datacenter()
		if err != nil {
			return false, err
		}
		image := proxmox.Owned{Kind: proxmox.Image, Node: first, Volume: second}
		things, err := proxmox.Search{Client: client}.Gone(ctx, []proxmox.Owned{image}, report)
		if err != nil {
			return false, err
		}
		return !things[0].Gone, nil
	case !isInCluster(typ, o.inCluster):
		return false, errUnasked
	case typ == "helm_release":
		return kube.ReleaseExists(ctx, o.cluster, first, second)
	case !both:
		first, second = "", first
	}
	return kube.Exists(ctx, o.cluster, kindOf(typ), first, second)
}

func isDownload(typ string) bool {
	return typ == "proxmox_virtual_environment_download_file" || typ == "proxmox_download_file"
}

func isMachine(typ string) bool { return typ == "proxmox_virtual_environment_vm" }

// isInCluster reports whether the resources of a type are made by one of these
// providers, which castle wires to the cluster.
func isInCluster(typ string, providers []string) bool {
	name, _, _ := strings.Cut(typ, "_")
	return slices.Contains(providers, "registry.terraform.io/hashicorp/"+name)
}
