package status

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"

	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/doctor"
	"github.com/ephemeral-castle/castle/internal/doctor/finding"
	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/outdated"
	"github.com/ephemeral-castle/castle/internal/run"
	"github.com/ephemeral-castle/castle/internal/run/expiry"
	"github.com/ephemeral-castle/castle/internal/state"
	"github.com/ephemeral-castle/castle/internal/terraform"
)

// Doctor checks the prerequisites of a create of the cluster, or of this machine alone if o names none. It
// takes no lock and changes nothing. Without a store it makes no state directory. lab is castle-lab's path.
func Doctor(ctx context.Context, o cluster.Options, lab string) (*doctor.Report, error) {
	root, err := state.Root(o.StateDir, o.Environ)
	if err != nil {
		return nil, err
	}
	shared, err := cluster.OpenStore(ctx, o)
	if err == nil {
		defer shared.Close() //nolint:errcheck // the check has its result
	}
	downloads, homeless := shared.Downloads(o, root)
	if homeless != nil {
		return nil, homeless
	}
	machine := doctor.Machine{
		Environ: o.Environ, StateRoot: root, Lab: lab, Resolve: net.DefaultResolver.LookupHost,
		Terraform: func(ctx context.Context) (terraform.Candidate, error) {
			product, err := cluster.Product(config.ReadProgram(o.Config()))
			if err != nil {
				return terraform.Candidate{}, err
			}
			return terraform.Preview(ctx, product, filepath.Join(downloads, ".terraform"))
		},
	}
	switch {
	case errors.As(err, new(*cluster.UsageError)):
		machine.Store = &doctor.Store{Err: err}
	case err != nil:
		return nil, err
	case shared != nil:
		machine.Store = &doctor.Store{
			Store: shared.Store, Encryption: shared.Encryption, Fix: cluster.StoreFix,
		}
	}
	if o.Cluster == "" {
		return doctor.OfMachine(ctx, machine)
	}
	target, err := doctorTarget(ctx, o, root, downloads, shared, machine.Store)
	if err != nil {
		return nil, err
	}
	return doctor.OfCluster(ctx, machine, target)
}

// doctorTarget reads the cluster's configuration and states for doctor. If it cannot read them from the
// store, checked says why, and the states are those that this machine has.
func doctorTarget(ctx context.Context, o cluster.Options, root, downloads string,
	shared *cluster.StateStore, checked *doctor.Store) (doctor.Target, error) {
	configured, err := o.Load()
	if err != nil {
		return doctor.Target{}, err
	}
	if err := cluster.OutOfTree(root, o.Repository); err != nil {
		return doctor.Target{}, err
	}
	masker := o.NewMasker(configured)
	p := doctor.Target{
		Name: configured.Name, Platform: configured.Platform, Stages: configured.Stages, Masker: masker,
		Platforms: cluster.Platforms(),
		Plugins:   filepath.Join(downloads, ".plugins"),
		Charts: func(ctx context.Context) []finding.Finding {
			return missing(outdated.Charts(ctx, nil, configured), o.Cluster)
		},
		Known:   func(*config.Stage) ([]gate.Known, error) { return nil, nil },
		Started: func(*config.Stage) bool { return false },
	}
	_, err = os.Lstat(filepath.Join(root, configured.Name, configured.Platform))
	if errors.Is(err, fs.ErrNotExist) && shared == nil {
		return p, nil
	}
	dir, _, _, err := shared.OpenDir(ctx, root, configured.Name, configured.Platform)
	if err != nil && dir != nil && checked != nil {
		if checked.Err == nil {
			checked.Err = err
		}
		err = nil
	}
	if err != nil {
		return p, err
	}
	r := run.Observe(ctx, &cluster.Cluster{Options: o, Config: configured, Dir: dir, Masker: masker})
	states, err := r.LastKnownStates()
	if err != nil {
		return p, r.Cluster.MaskError(err)
	}
	p.Outputs = r.Outputs.Scope(&config.Stage{}).Outputs
	p.Certificates = func(ctx context.Context) []finding.Finding {
		return findings(expiry.Look(ctx, r, states, true))
	}
	p.Key = cluster.MachineKey(dir)
	p.Exists = slices.ContainsFunc(configured.Stages, func(s *config.Stage) bool {
		_, access := s.Outputs[cluster.KubeconfigOutput]
		return (s.EndsCluster || access) && len(states[s].Resources) > 0
	})
	p.Known = func(s *config.Stage) ([]gate.Known, error) {
		ids, err := cluster.MachineIDs(dir.Stage(s.Name)).Value()
		return cluster.Known(states[s], ids...), err
	}
	p.Started = func(s *config.Stage) bool {
		_, err := dir.Stage(s.Name).Record()
		return err == nil
	}
	return p, nil
}

// missing are doctor's findings: charts that their repositories do not have.
func missing(charts []*outdated.Item, cluster string) (found []finding.Finding) {
	asked := 0
	for _, i := range charts {
		switch i.Status {
		case outdated.Unknown:
			continue
		case outdated.Missing:
			found = append(found, finding.Obstacle("choose one that it has; castle outdated "+cluster+
				" lists newer ones", "%s has no version %s of the chart %s", i.Source, i.Pinned, i.Name)...)
		}
		asked++
	}
	if asked == 0 {
		return nil
	}
	return finding.OrGood(found, "each of %d charts has the pinned version in its repository", asked)
}

// findings are doctor's: what expires soon.
func findings(items []expiry.Item) (found []finding.Finding) {
	for _, i := range items {
		if i.Warns() {
			found = append(found, finding.Warning(i.Fix, "%s", i)...)
		}
	}
	return found
}
