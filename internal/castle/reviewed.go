package castle

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/event"
	"github.com/ephemeral-castle/castle/internal/graph"
	"github.com/ephemeral-castle/castle/internal/planfile"
	"github.com/ephemeral-castle/castle/internal/state"
)

// review is the saved plan that a create applies. Before anything is changed, all
// that the plan depends on is compared with what it depended on when it was saved;
// before each stage, once more, as earlier stages may have said something else.
type review struct {
	*planfile.Plan
	path, digest string

	mu      sync.Mutex
	allowed map[string][]planfile.Change // of stages that were planned in this run
}

// StaleError says that a saved plan is not applied, as it was made for something else.
type StaleError struct {
	File  string
	Moved []string
	Again string // the command that saves a new one
}

func (e *StaleError) Error() string {
	return fmt.Sprintf("%s is out of date, and is not applied; since it was saved have changed:\n  %s\n  plan again and have that reviewed: %s",
		e.File, strings.Join(e.Moved, "\n  "), e.Again)
}

// review reads a saved plan and returns the stages that it decides on.
func (c *Castle) review(path string) (*review, []*config.Stage, error) {
	plan, digest, err := planfile.Read(path)
	if err != nil {
		return nil, nil, &UsageError{Message: "--plan: " + err.Error()}
	}
	if plan.Cluster != c.Name() {
		return nil, nil, &UsageError{Message: fmt.Sprintf("--plan: %s is a plan of %s, not of %s", path, plan.Cluster, c.Name())}
	}
	if plan.StateDir != c.dir.Path() {
		return nil, nil, &UsageError{Message: fmt.Sprintf("--plan: %s was made with the state directory %s, and this is %s: "+
			"Terraform's plans name paths in it. Apply it where that is, or plan again here", path, plan.StateDir, c.dir.Path())}
	}
	chosen := slices.DeleteFunc(slices.Clone(c.cluster.Stages), func(s *config.Stage) bool { return plan.Stage(s.Name) == nil })
	return &review{Plan: plan, path: path, digest: digest, allowed: map[string][]planfile.Change{}}, chosen, nil
}

// follow makes the run one that applies a saved plan, if nothing has moved since.
func (r *creation) follow(plan *review, chosen []*config.Stage) error {
	if plan == nil {
		return nil
	}
	r.reviewed = plan
	moved, err := r.moved(chosen)
	if err != nil {
		return err
	}
	if len(moved) > 0 {
		return r.stale(moved...)
	}
	r.emit(event.Event{
		Kind: event.Reviewed, Text: fmt.Sprintf("as planned %s in %s (sha256 %s)", plan.Made.Local().Format(time.DateTime), plan.path, plan.digest),
		Reviewed: &event.ReviewedPlan{File: plan.path, SHA256: plan.digest, Run: plan.Run, Made: plan.Made},
	})
	return nil
}

func (r *creation) stale(moved ...string) error {
	return &StaleError{File: r.reviewed.path, Moved: moved, Again: r.planAgain()}
}

// planAgain is the command that saves a new plan of the same stages.
func (r *creation) planAgain() string {
	command := r.command("plan")
	if len(r.reviewed.Stages) < len(r.cluster.Stages) {
		var names []string
		for _, s := range r.reviewed.Stages {
			names = append(names, s.Name)
		}
		command += " --only " + strings.Join(names, ",")
	}
	return command + " --plan-out " + r.reviewed.path
}

// moved says what is not as it was when the plan was saved. Of a stage that this
// very plan has begun to change, in a run that did not come to its end, the state
// may have moved; what follows from it is for that stage's turn.
func (r *creation) moved(chosen []*config.Stage) (moved []string, err error) {
	if r.reviewed.Castle != r.options.Version {
		moved = append(moved, fmt.Sprintf("castle: %s planned it, this is %s", r.reviewed.Castle, r.options.Version))
	}
	now, err := r.configurationFacts()
	if err != nil {
		return nil, err
	}
	moved = append(moved, now.Changed(r.reviewed.Facts)...)
	begun, silent := map[*config.Stage]bool{}, map[*config.Stage]bool{}
	old := r.recalled()
	for _, s := range r.cluster.Stages {
		st, err := r.readState(r.dir.Stage(s.Name))
		if err != nil {
			return nil, err
		}
		old.said.put(s, r.outputsOf(s, st))
		silent[s] = s.Volatile && !st.Exists // the plan heard what it will say
		if begun[s], err = r.begun(s); err != nil {
			return nil, err
		}
	}
	for _, one := range r.reviewed.Stages {
		at := slices.IndexFunc(chosen, func(s *config.Stage) bool { return s.Name == one.Name })
		if at < 0 {
			moved = append(moved, fmt.Sprintf("stage %s: it is not in the configuration any more", one.Name))
			continue
		}
		s := chosen[at]
		after := slices.ContainsFunc(graph.Closure(r.cluster.Stages, stageNeeds, s.Needs...), func(n *config.Stage) bool { return begun[n] || silent[n] })
		facts, err := old.facts(s, isPlanned(one.State))
		if err != nil && !after {
			moved = append(moved, fmt.Sprintf("stage %s: %v", s.Name, err))
		}
		if err != nil {
			continue
		}
		if differs := differing(facts, one.Facts, begun[s], after); len(differs) > 0 {
			moved = append(moved, fmt.Sprintf("stage %s: %s", s.Name, strings.Join(differs, ", ")))
		}
	}
	return moved, nil
}

// recalled is this run as it would be if no stage had said anything yet.
func (r *run) recalled() *run {
	return &run{Castle: r.Castle, binary: r.binary, said: newOutputs(r.masker)}
}

// differing names what a stage's plan depends on and is not what it was. A stage
// that was begun has another state, and what comes after one is told other things.
func differing(now, then *state.Fingerprint, begun, after bool) []string {
	return slices.DeleteFunc(now.Changed(then), func(part string) bool {
		return begun && (part == "state" || part == "intent") || after && (part == "cluster" || strings.HasPrefix(part, "variable "))
	})
}

// begunNote says which saved plan has begun to change a stage last.
func begunNote(dir *state.Stage) state.Document[begunPlan] {
	return state.StageDocument[begunPlan](dir, "reviewed")
}

type begunPlan struct {
	SHA256 string `json:"sha256"`
	Run    string `json:"run"`
}

// beginReviewed notes that the saved plan begins to change a stage.
func (r *creation) beginReviewed(dir *state.Stage) error {
	if r.reviewed == nil {
		return nil
	}
	return begunNote(dir).Write(begunPlan{SHA256: r.reviewed.digest, Run: r.id})
}

// begun reports whether the saved plan had begun to change a stage before.
func (r *creation) begun(s *config.Stage) (bool, error) {
	note, err := begunNote(r.dir.Stage(s.Name)).Value()
	return note.SHA256 == r.reviewed.digest, err
}
