// Package review is what somebody has agreed to: saved plans with the facts that they
// depend on, the changes that one allows, and the losses that a user confirms.
package review

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/planfile"
	"github.com/ephemeral-castle/castle/internal/state"
	"github.com/ephemeral-castle/castle/internal/terraform"
)

// review is the saved plan that a create applies. Before anything is changed, all
// that the plan depends on is compared with what it depended on when it was saved;
// before each stage, once more, as earlier stages may have said something else.
type Saved struct {
	Plan         *planfile.Plan
	Path, Digest string

	Mu      sync.Mutex
	Allowed map[string][]planfile.Change // of stages that were planned in this run
}

// StaleError says that a saved plan is not applied, as it was made for something else.
type StaleError struct {
	File  string
	Moved []string
	Again string // the command that saves a new one
}

func (e *StaleError) Error() string {
	return fmt.Sprintf(
		"%s is out of date, and is not applied; since it was saved have changed:\n  %s\n  plan again and have that reviewed: %s",
		e.File,
		strings.Join(e.Moved, "\n  "),
		e.Again,
	)
}

// review reads a saved plan and returns the stages that it decides on.
func Open(c *cluster.Cluster, path string) (*Saved, []*config.Stage, error) {
	plan, digest, err := planfile.Read(path)
	if err != nil {
		return nil, nil, &cluster.UsageError{Message: "--plan: " + err.Error()}
	}
	if plan.Cluster != c.Name() {
		return nil, nil, &cluster.UsageError{
			Message: fmt.Sprintf("--plan: %s is a plan of %s, not of %s", path, plan.Cluster, c.Name()),
		}
	}
	if plan.StateDir != c.Dir.Path() {
		return nil, nil, &cluster.UsageError{
			Message: fmt.Sprintf("--plan: %s was made with the state directory %s, and this is %s: "+
				"Terraform's plans name paths in it. Apply it where that is, or plan again here", path, plan.StateDir, c.Dir.Path()),
		}
	}
	chosen := slices.DeleteFunc(
		slices.Clone(c.Config.Stages),
		func(s *config.Stage) bool { return plan.Stage(s.Name) == nil },
	)
	return &Saved{
		Plan:    plan,
		Path:    path,
		Digest:  digest,
		Allowed: map[string][]planfile.Change{},
	}, chosen, nil
}

// differing names what a stage's plan depends on and is not what it was. A stage
// that was begun has another state, and what comes after one is told other things.
func Differing(now, then *state.Fingerprint, begun, after bool) []string {
	return slices.DeleteFunc(now.Changed(then), func(part string) bool {
		return begun && (part == "state" || part == "intent") ||
			after && (part == "cluster" || strings.HasPrefix(part, "variable "))
	})
}

// begunNote says which saved plan has begun to change a stage last.
func BegunNote(dir *state.Stage) state.Document[BegunPlan] {
	return state.StageDocument[BegunPlan](dir, "reviewed")
}

type BegunPlan struct {
	SHA256 string `json:"sha256"`
	Run    string `json:"run"`
}

func ChangesOf(plan *terraform.Plan) (all []planfile.Change) {
	for _, c := range plan.Changes {
		all = append(all, planfile.Change{Address: c.Address, Action: c.Action})
	}
	return all
}

// onlyMakes reports whether a change leaves what exists as it is. What was imported
// just now was not the stage's before, and what was made by half is no loss.
func OnlyCreates(c terraform.Change, imported bool) bool {
	switch c.Action {
	case "create", "read", "import":
		return true
	case "update":
		return imported
	}
	return c.Reason == "tainted"
}

// isLeft reports whether a change is what is left to do of those that were reviewed.
func IsRemaining(c terraform.Change, reviewed []planfile.Change) bool {
	leaves := map[string][]string{
		"create": {"create", "import", "update"}, "adopt": {"create", "import", "update"},
		"replace": {"replace", "create", "update", "delete"},
	}
	return c.Action == "read" || slices.ContainsFunc(reviewed, func(was planfile.Change) bool {
		return was.Address == c.Address &&
			(was.Action == c.Action || c.Reason == "tainted" || slices.Contains(leaves[was.Action], c.Action))
	})
}
