package review

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/run"
	"github.com/ephemeral-castle/castle/internal/state"
)

// IsPlanned reports whether Terraform planned a stage in this state with its inputs.
func IsPlanned(state string) bool {
	return slices.Contains([]string{UpToDate, Unchanged, Changes}, state)
}

// Facts digests the inputs of a stage's plan. For a stage without a plan it covers the module and the state:
// the inputs come from other stages.
func Facts(r *run.Run, s *config.Stage, planned bool) (*state.Fingerprint, error) {
	f := new(state.Fingerprint)
	dir := r.Cluster.Dir.Stage(s.Name)
	if planned {
		var err error
		if f, err = run.Fingerprint(r, s); err != nil {
			return nil, err
		}
	} else if err := errors.Join(f.AddFS("module", s.Module), run.AddState(f, dir)); err != nil {
		return nil, err
	}
	return f, dir.Intent().Fingerprint(f)
}

// ConfigurationFacts digests the configuration files, variables and Terraform binary of a plan.
func ConfigurationFacts(r *run.Run) (*state.Fingerprint, error) {
	f := new(state.Fingerprint)
	for name, path := range map[string]string{
		"castle.hcl":       filepath.Join(r.Cluster.Options.Repository, "castle.hcl"),
		"cluster.hcl":      filepath.Join(r.Cluster.Config.Dir, "cluster.hcl"),
		"terraform.tfvars": filepath.Join(r.Cluster.Config.Dir, "terraform.tfvars"),
		"secrets.tfvars":   filepath.Join(r.Cluster.Config.Dir, "secrets.tfvars"),
	} {
		if err := f.AddFile(name, path); err != nil {
			return nil, err
		}
	}
	for name, value := range r.Cluster.Options.Vars {
		f.Add("--var "+name, []byte(value))
	}
	for _, path := range r.Cluster.Options.VarFiles { // the last one wins
		data, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		f.Add("--var-file", data)
	}
	for _, kv := range r.Cluster.Options.Environ {
		if name, value, _ := strings.Cut(kv, "="); declares(r.Cluster, strings.TrimPrefix(name, "TF_VAR_")) &&
			strings.HasPrefix(name, "TF_VAR_") {
			f.Add(name, []byte(value))
		}
	}
	binary, err := r.Binary()
	if err != nil {
		return nil, err
	}
	f.Add("terraform", []byte(binary.SHA256))
	return f, nil
}

// declares reports whether any stage has a variable of that name.
func declares(c *cluster.Cluster, variable string) bool {
	return slices.ContainsFunc(c.Config.Stages,
		func(s *config.Stage) bool { _, is := s.Variables[variable]; return is })
}
