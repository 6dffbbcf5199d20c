// Package review decides whether a change was approved. It owns saved plans with the facts that they depend
// on, the changes that a plan allows, and the losses that a user confirms.
package review

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/outline"
	"github.com/ephemeral-castle/castle/internal/run"
	"github.com/ephemeral-castle/castle/internal/run/applied"
	"github.com/ephemeral-castle/castle/internal/state"
	"github.com/ephemeral-castle/castle/internal/terraform"
)

// StaleError reports that castle does not apply a saved plan because its facts have changed.
type StaleError struct {
	File  string
	Moved []string
	Again string // the command that saves a new one
	// Forged: Moved lists where Terraform's plans in the file differ from what the file describes.
	Forged bool
}

func (e *StaleError) Error() string {
	if e.Forged {
		return fmt.Sprintf("%s was not applied; Terraform's own plans in it are not the described ones:"+
			"\n  %s\n  somebody may have changed the file: plan again and have that reviewed: %s", e.File,
			strings.Join(e.Moved, "\n  "), e.Again)
	}
	return fmt.Sprintf("%s is outdated and was not applied; these have changed since it was saved:\n  %s\n"+
		"  plan again and have that reviewed: %s", e.File, strings.Join(e.Moved, "\n  "), e.Again)
}

var _ = []run.Refusal{&HarmError{}, &NodeError{}, &ExceedsError{}, &UnagreedError{}, &UnreviewedError{},
	&StaleError{}}

// IsRefusal marks the error, as those below do.
func (*HarmError) IsRefusal()       {}
func (*NodeError) IsRefusal()       {}
func (*ExceedsError) IsRefusal()    {}
func (*UnagreedError) IsRefusal()   {}
func (*UnreviewedError) IsRefusal() {}
func (*StaleError) IsRefusal()      {}

// Open reads a saved plan and returns the stages that it contains. A digest is that of the reviewed file.
func Open(c *cluster.Cluster, path, digest string) (*SavedPlan, []*config.Stage, error) {
	plan, err := ReadSavedPlan(path, c.Store.FileEncryption())
	switch {
	case err != nil:
		return nil, nil, cluster.Usagef("--plan: %v", err)
	case digest != "" && !strings.EqualFold(digest, plan.Digest):
		return nil, nil, cluster.Usagef("--plan: %s has the sha256 %s, and --plan-digest is another one: it "+
			"is not the file that was reviewed; plan again, or use that file", path, plan.Digest)
	case plan.Cluster != c.Name():
		return nil, nil, cluster.Usagef("--plan: %s is a plan of %s, not of %s", path, plan.Cluster, c.Name())
	case plan.StateDir != c.Dir.Path():
		return nil, nil, cluster.Usagef("--plan: %s was made with the state directory %s, and this is %s: "+
			"Terraform's plans name paths in it. Apply it with --state-dir %s, or plan again here",
			path, plan.StateDir, c.Dir.Path(), cluster.Word(filepath.Dir(filepath.Dir(plan.StateDir))))
	}
	return plan, slices.DeleteFunc(slices.Clone(c.Config.Stages),
		func(s *config.Stage) bool { return plan.Stage(s.Name) == nil }), nil
}

// Facts digests the inputs of a stage's plan. For a stage without a plan it covers the module and the state:
// the inputs come from other stages.
func Facts(r *run.Run, s *config.Stage, planned bool) (*state.Fingerprint, error) {
	f := new(state.Fingerprint)
	dir := r.Cluster.Dir.Stage(s.Name)
	if planned {
		var err error
		if f, err = applied.Fingerprint(r, s); err != nil {
			return nil, err
		}
	} else if err := errors.Join(f.AddFS("module", s.Module), applied.AddState(f, dir)); err != nil {
		return nil, err
	}
	return f, dir.Intent().Fingerprint(f)
}

// ConfigurationFacts digests the configuration files, variables and Terraform version of a plan.
func ConfigurationFacts(r *run.Run) (*state.Fingerprint, error) {
	f := new(state.Fingerprint)
	repository := r.Cluster.Options.Repository
	for name, path := range map[string]string{
		"castle.hcl":       filepath.Join(repository, "castle.hcl"),
		"cluster.hcl":      filepath.Join(r.Cluster.Config.Dir, "cluster.hcl"),
		"terraform.tfvars": filepath.Join(r.Cluster.Config.Dir, "terraform.tfvars"),
		"secrets.tfvars":   filepath.Join(r.Cluster.Config.Dir, "secrets.tfvars"),
		"the cluster's " + outline.SharedFile: filepath.Join(filepath.Dir(r.Cluster.Config.Dir),
			outline.SharedFile),
		"all clusters' " + outline.SharedFile: filepath.Join(repository, "clusters", outline.SharedFile),
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
		name, value, _ := strings.Cut(kv, "=")
		variable, set := strings.CutPrefix(name, "TF_VAR_")
		declares := func(s *config.Stage) bool { _, is := s.Variables[variable]; return is }
		if set && slices.ContainsFunc(r.Cluster.Config.Stages, declares) {
			f.Add(name, []byte(value))
		}
	}
	binary, err := r.Binary()
	if err != nil {
		return nil, err
	}
	f.Add("terraform", []byte(binary.Fact()))
	return f, nil
}

// Differing returns the parts of a stage's facts that changed since the plan. It ignores the state of a
// stage that the plan has begun, and inputs after a stage that it has begun.
func Differing(now, then *state.Fingerprint, begun, after bool) []string {
	return slices.DeleteFunc(now.Changed(then), func(part string) bool {
		return begun && (part == "state" || part == "intent") ||
			after && (part == "cluster" || strings.HasPrefix(part, "variable "))
	})
}

// IsProvider reports whether a part of a stage's facts is the version of a provider.
func IsProvider(part string) bool { return strings.HasPrefix(part, "provider ") }

// BegunNote records which saved plan last began to change a stage.
func BegunNote(dir *state.Stage) state.Document[BegunPlan] {
	return state.StageDocument[BegunPlan](dir, "reviewed")
}

// BegunPlan identifies a saved plan and the run that began to apply it.
type BegunPlan struct {
	SHA256 string `json:"sha256"`
	Run    string `json:"run"`
}

// OnlyCreates reports whether a change keeps everything that exists. An update of a resource that this
// run imported and the replacement of a tainted one count as such.
func OnlyCreates(c terraform.Change, imported bool) bool {
	switch c.Action {
	case "create", "read", "import":
		return true
	case "update":
		return imported
	}
	return c.Reason == "tainted"
}

// IsRemaining reports whether a change completes one of the reviewed changes.
func IsRemaining(c terraform.Change, reviewed []Change) bool {
	leaves := map[string][]string{
		"create": {"create", "import", "update"}, "adopt": {"create", "import", "update"},
		"replace": {"replace", "create", "update", "delete"},
	}
	return c.Action == "read" || slices.ContainsFunc(reviewed, func(was Change) bool {
		return was.Address == c.Address &&
			(was.Action == c.Action || c.Reason == "tainted" || slices.Contains(leaves[was.Action], c.Action))
	})
}
