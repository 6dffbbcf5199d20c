package castle

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/planfile"
	"github.com/ephemeral-castle/castle/internal/state"
	"github.com/ephemeral-castle/castle/internal/terraform"
)

// PlanExtension ends the names of the files that plans are saved in.
const PlanExtension = planfile.Extension

// SavedPlan is the file that a plan was saved in.
type SavedPlan struct {
	Path   string `json:"path"`
	SHA256 string `json:"sha256"`
	Apply  string `json:"apply"` // the command that applies it
	// Unplanned are the stages of which it says nothing yet: their turn decides.
	Unplanned []string `json:"unplanned"`
	// Imports are those that are planned anew, as something is imported first.
	Imports []string `json:"imports"`
}

// save writes the plan to a file that a create applies exactly.
func (p *planning) save(path string, plan *Plan, chosen []*config.Stage, made []plannedStage) error {
	file := &planfile.Plan{Cluster: p.Name(), Castle: p.options.Version, StateDir: p.dir.Path(), Run: p.id, Made: time.Now().UTC()}
	var err error
	if file.Facts, err = p.configurationFacts(); err != nil {
		return err
	}
	saved := &SavedPlan{Path: path, Apply: p.command("create") + " --plan " + path, Unplanned: []string{}, Imports: []string{}}
	for i, s := range chosen {
		one := planfile.Stage{Name: s.Name, State: made[i].State, Saved: made[i].saved}
		if one.Facts, err = p.facts(s, isPlanned(one.State)); err != nil {
			return err
		}
		for _, c := range made[i].Changes {
			one.Changes = append(one.Changes, planfile.Change{Address: c.Address, Action: c.Action})
		}
		switch {
		case !isPlanned(one.State):
			saved.Unplanned = append(saved.Unplanned, s.Name)
		case one.State == PlanChanges && one.Saved == nil:
			saved.Imports = append(saved.Imports, s.Name)
		}
		file.Stages = append(file.Stages, one)
	}
	saved.SHA256, err = planfile.Write(path, file)
	plan.Saved = saved
	return err
}

// isPlanned reports whether a stage of this state was planned with its inputs.
func isPlanned(state string) bool {
	return slices.Contains([]string{PlanCurrent, PlanUnchanged, PlanChanges}, state)
}

// facts digests what the plan of a stage depends on. Of one that could not be
// planned, that is what is known of it: the rest comes from other stages' states.
func (r *run) facts(s *config.Stage, planned bool) (*state.Fingerprint, error) {
	f := new(state.Fingerprint)
	dir := r.dir.Stage(s.Name)
	if planned {
		binary, err := r.binary()
		if err != nil {
			return nil, err
		}
		if f, err = r.fingerprintOf(s, &terraform.Root{Binary: binary, Dir: dir.Work()}); err != nil {
			return nil, err
		}
	} else if err := errors.Join(f.AddFS("module", s.Module), addState(f, dir)); err != nil {
		return nil, err
	}
	return f, dir.Intent().Fingerprint(f)
}

// configurationFacts digests what was configured, and the Terraform that planned it.
func (r *run) configurationFacts() (*state.Fingerprint, error) {
	f := new(state.Fingerprint)
	for name, path := range map[string]string{
		"castle.hcl":       filepath.Join(r.options.Repository, "castle.hcl"),
		"cluster.hcl":      filepath.Join(r.cluster.Dir, "cluster.hcl"),
		"terraform.tfvars": filepath.Join(r.cluster.Dir, "terraform.tfvars"),
		"secrets.tfvars":   filepath.Join(r.cluster.Dir, "secrets.tfvars"),
	} {
		if err := f.AddFile(name, path); err != nil {
			return nil, err
		}
	}
	for name, value := range r.options.Vars {
		f.Add("--var "+name, []byte(value))
	}
	for _, path := range r.options.VarFiles { // the last one wins
		data, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		f.Add("--var-file", data)
	}
	for _, kv := range r.options.Environ {
		if name, value, _ := strings.Cut(kv, "="); r.declares(strings.TrimPrefix(name, "TF_VAR_")) && strings.HasPrefix(name, "TF_VAR_") {
			f.Add(name, []byte(value))
		}
	}
	binary, err := r.binary()
	if err != nil {
		return nil, err
	}
	f.Add("terraform", []byte(binary.SHA256))
	return f, nil
}

// declares reports whether any stage has a variable of that name.
func (c *Castle) declares(variable string) bool {
	return slices.ContainsFunc(c.cluster.Stages, func(s *config.Stage) bool { _, is := s.Variables[variable]; return is })
}
