// Package recovery finds the objects that an interrupted run was creating, and imports those that exist into
// the stage's state. The next create or destroy does so, and from then on Terraform manages them like any
// other. Machines are the exception: the preflights find those, as a VM id alone does not identify a machine.
package recovery

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/kube"
	"github.com/ephemeral-castle/castle/internal/platform"
	"github.com/ephemeral-castle/castle/internal/run"
	"github.com/ephemeral-castle/castle/internal/state"
	"github.com/ephemeral-castle/castle/internal/terraform"
)

// InFlight returns the changes in a stage's intent that its state lacks, without those whose objects
// exist only in the state. Those of machines, and others that preflights find, are left to them.
func InFlight(dir *state.Stage, st *state.State) ([]state.Intended, error) {
	intent, err := dir.Intent().Read()
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(intent.InFlight(st.Has), func(c state.Intended) bool {
		return cluster.Platforms().FoundByPreflights(c.Type) || endsWithState(c.Type)
	}), nil
}

// Datacenter opens the datacenter that a stage's preflights read. It makes no request. The error is
// ErrNoLookup if they read none.
func Datacenter(r *run.Run, s *config.Stage) (platform.Datacenter, error) {
	for _, p := range s.Preflights {
		of := cluster.Platforms().Of(p.Type.Name)
		if of == nil {
			continue
		}
		values, diags := p.Values(s, r.Outputs.Scope(s))
		if diags.HasErrors() {
			return nil, diags
		}
		account, _, err := of.Account(values)
		if err != nil {
			return nil, err
		}
		return of.Open(account)
	}
	return nil, ErrNoLookup
}

// Unfinished returns the resources whose provisioners an interrupted run may not have run to their end.
func Unfinished(dir *state.Stage, st *state.State) ([]string, error) {
	intent, err := dir.Intent().Read()
	if err != nil {
		return nil, err
	}
	return intent.Unfinished(st), nil
}

// Taint has the next plan replace unfinished resources, and returns the state. A destroy does not: of a
// tainted resource, Terraform skips the destroy-time provisioners.
func Taint(ctx context.Context, work *run.Workspace, st *state.State) (*state.State, error) {
	unfinished, err := Unfinished(work.Dir, st)
	if err != nil || len(unfinished) == 0 {
		return st, err
	}
	err = work.Dir.Snapshot()
	if err == nil {
		err = work.Step("taint", func() error { return work.Root.Taint(ctx, unfinished) })
	}
	if err != nil {
		return nil, run.During("taint", err)
	}
	work.Run.Notice("a run was killed while provisioners ran; castle replaces " +
		strings.Join(unfinished, ", "))
	return work.Run.ReadState(work.Dir)
}

// endsWithState reports whether resources of a type exist only in the state, or in machines that end by
// themselves. The intent has the types of all others.
func endsWithState(typ string) bool {
	name, _, _ := strings.Cut(typ, "_")
	return slices.Contains([]string{"", "terraform", "random", "tls", "talos"}, name)
}

// Import imports the objects of interrupted changes that exist. work holds the stage's module; afterwards
// it may hold the recorded one.
func Import(ctx context.Context, work *run.Workspace, lost []state.Intended, o Lookup) error {
	for _, c := range lost {
		if err := importIfThere(ctx, work, c, o); err != nil {
			return fmt.Errorf("%s was being made by a run that did not finish: %w", c.Address, err)
		}
	}
	return nil
}

func importIfThere(ctx context.Context, work *run.Workspace, c state.Intended, o Lookup) error {
	notice := work.Run.Notice
	if c.ID == "" {
		notice(c.Address + " may have been created by an interrupted run, and castle cannot look it up")
		return nil
	}
	yes, err := o.Has(ctx, c.Type, c.ID, notice)
	if errors.Is(err, ErrNoLookup) {
		yes, err = true, nil // the import fails if it does not exist
	}
	if err != nil || !yes {
		return err
	}
	err = work.Step("import", func() error {
		err := work.Root.Import(ctx, c.Address, c.ID)
		if errors.Is(err, terraform.ErrNotConfigured) { // the configuration has changed since
			if err = work.PrepareRecorded(ctx); err == nil {
				err = work.Root.Import(ctx, c.Address, c.ID)
			}
		}
		if errors.Is(err, terraform.ErrNoSuchObject) {
			yes, err = false, nil
		}
		return err
	})
	if err != nil || !yes {
		return err
	}
	work.ReportImport(c.Address, c.ID)
	notice(fmt.Sprintf("%s (%s) was made by a run that was killed; it is taken over", c.Address, c.ID))
	return nil
}

// Summary describes the objects that an interrupted run may have created.
func Summary(dir *state.Stage, st *state.State) string {
	intent, err := dir.Intent().Read()
	if err != nil {
		return err.Error()
	}
	if intent == nil {
		return ""
	}
	reason := fmt.Sprintf("run %s did not finish", intent.Run)
	var lost []string
	for _, c := range intent.InFlight(st.Has) {
		if !endsWithState(c.Type) {
			lost = append(lost, c.Address)
		}
	}
	if len(lost) > 0 {
		reason += "; the next one looks for what it may have made: " + strings.Join(lost, ", ")
	}
	if unfinished := intent.Unfinished(st); len(unfinished) > 0 {
		reason += "; the provisioners of these may not have run, so a create replaces them: " +
			strings.Join(unfinished, ", ")
	}
	return reason
}

// InStateOnly reports whether a provider's resources exist only in the state.
func InStateOnly(provider string) bool {
	return slices.Contains([]string{"terraform.io/builtin/terraform",
		"registry.terraform.io/hashicorp/random", "registry.terraform.io/hashicorp/tls"}, provider)
}

// Lookup finds the objects of a stage in the cluster and the datacenter.
type Lookup struct {
	Cluster    gate.Target
	InCluster  []string // source addresses of the providers that castle wires to it
	Datacenter func() (platform.Datacenter, error)
}

// ErrNoLookup reports that castle has no way to look up an object of that type.
var ErrNoLookup = errors.New("castle has no lookup for this type")

// Has reports whether an object exists, by the id that `terraform import` takes. It waits for one that is
// still being created, and reports that.
func (o Lookup) Has(ctx context.Context, typ, id string, report func(string)) (bool, error) {
	for _, p := range cluster.Platforms() {
		if file, isFile := p.FileOf(typ, id); isFile {
			datacenter, err := o.Datacenter()
			if err != nil {
				return false, err
			}
			found, err := datacenter.Gone(ctx, []platform.Object{file}, report)
			return err == nil && !found[0].Gone, err
		}
	}
	first, second, both := strings.Cut(id, "/")
	switch {
	case !IsInCluster(typ, o.InCluster):
		return false, ErrNoLookup
	case typ == "helm_release":
		return kube.ReleaseExists(ctx, o.Cluster, first, second)
	case !both:
		first, second = "", first
	}
	return kube.Exists(ctx, o.Cluster, kube.KindOf(typ), first, second)
}

// IsInCluster reports whether the resources of a type come from one of these providers in the cluster.
func IsInCluster(typ string, providers []string) bool {
	name, _, _ := strings.Cut(typ, "_")
	return slices.Contains(providers, "registry.terraform.io/hashicorp/"+name)
}
