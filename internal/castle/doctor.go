package castle

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"

	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/doctor"
	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/secret"
	"github.com/ephemeral-castle/castle/internal/state"
	"github.com/ephemeral-castle/castle/internal/terraform"
)

// Doctor asks everything that a create of the cluster relies on, or of this machine
// alone if o names none. It takes no lock, changes nothing and makes no state
// directory. lab is where castle-lab is, empty if nowhere.
func Doctor(ctx context.Context, o Options, lab string) (*doctor.Report, error) {
	root, err := state.Root(o.StateDir, o.Environ)
	if err != nil {
		return nil, err
	}
	machine := doctor.Machine{
		Environ: o.Environ, StateRoot: root, Lab: lab, Resolve: net.DefaultResolver.LookupHost,
		Terraform: func(ctx context.Context) (terraform.Candidate, error) {
			return terraform.Preview(ctx, filepath.Join(root, ".terraform"))
		},
	}
	if o.Cluster == "" {
		return doctor.OfMachine(ctx, machine)
	}
	patient, err := o.patient(ctx, root)
	if err != nil {
		return nil, err
	}
	return doctor.OfCluster(ctx, machine, patient)
}

// patient reads the cluster's configuration, and what its states say if it has any.
func (o Options) patient(ctx context.Context, root string) (doctor.Patient, error) {
	configured, err := o.load()
	if err != nil {
		return doctor.Patient{}, err
	}
	if err := outOfTree(root, o.Repository); err != nil {
		return doctor.Patient{}, err
	}
	masker := &secret.Masker{}
	masker.Add(configured.Secrets()...)
	p := doctor.Patient{
		Name: configured.Name, Platform: configured.Platform, Stages: configured.Stages, Masker: masker, Plugins: filepath.Join(root, ".plugins"),
		Known: func(*config.Stage) ([]gate.Known, error) { return nil, nil },
		Began: func(*config.Stage) bool { return false },
	}
	if _, err := os.Stat(filepath.Join(root, configured.Name, configured.Platform)); errors.Is(err, fs.ErrNotExist) {
		return p, nil
	}
	dir, err := state.Open(root, configured.Name, configured.Platform)
	if err != nil {
		return p, err
	}
	r := (&Castle{options: o, cluster: configured, dir: dir, masker: masker}).observe(ctx)
	states, err := r.recall()
	if err != nil {
		return p, r.conceal(err)
	}
	p.Outputs = r.said.scope(&config.Stage{}).Outputs
	p.Stands = slices.ContainsFunc(configured.Stages, func(s *config.Stage) bool { return s.EndsCluster && len(states[s].Resources) > 0 })
	p.Known = func(s *config.Stage) ([]gate.Known, error) {
		marks, err := marksOf(dir.Stage(s.Name))
		return known(states[s], marks...), err
	}
	p.Began = func(s *config.Stage) bool {
		_, err := dir.Stage(s.Name).Record()
		return err == nil
	}
	return p, nil
}
