package create

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/event"
	"github.com/ephemeral-castle/castle/internal/graph"
	"github.com/ephemeral-castle/castle/internal/run"
	"github.com/ephemeral-castle/castle/internal/run/review"
	"github.com/ephemeral-castle/castle/internal/state"
)

// follow makes the run one that applies a saved plan, if nothing has moved since.
func (r *creation) followPlan(plan *review.Saved, chosen []*config.Stage) error {
	if plan == nil {
		return nil
	}
	r.saved = plan
	moved, err := r.changedSince(chosen)
	if err != nil {
		return err
	}
	if len(moved) > 0 {
		return r.stale(moved...)
	}
	r.run.Emit(event.Event{
		Kind: event.Reviewed, Text: fmt.Sprintf("as planned %s in %s (sha256 %s)", plan.Plan.Made.Local().Format(time.DateTime), plan.Path, plan.Digest),
		Reviewed: &event.ReviewedPlan{File: plan.Path, SHA256: plan.Digest, Run: plan.Plan.Run, Made: plan.Plan.Made},
	})
	return nil
}

func (r *creation) stale(moved ...string) error {
	return &review.StaleError{File: r.saved.Path, Moved: moved, Again: r.planAgain()}
}

// planAgain is the command that saves a new plan of the same stages.
func (r *creation) planAgain() string {
	command := r.run.Cluster.Command("plan")
	if len(r.saved.Plan.Stages) < len(r.run.Cluster.Config.Stages) {
		var names []string
		for _, s := range r.saved.Plan.Stages {
			names = append(names, s.Name)
		}
		command += " --only " + strings.Join(names, ",")
	}
	return command + " --plan-out " + r.saved.Path
}

// moved says what is not as it was when the plan was saved. Of a stage that this
// very plan has begun to change, in a run that did not come to its end, the state
// may have moved; what follows from it is for that stage's turn.
func (r *creation) changedSince(chosen []*config.Stage) (moved []string, err error) {
	if r.saved.Plan.Castle != r.run.Cluster.Options.Version {
		moved = append(moved, fmt.Sprintf("castle: %s planned it, this is %s", r.saved.Plan.Castle, r.run.Cluster.Options.Version))
	}
	now, err := review.ConfigurationFacts(r.run)
	if err != nil {
		return nil, err
	}
	moved = append(moved, now.Changed(r.saved.Plan.Facts)...)
	begun, silent := map[*config.Stage]bool{}, map[*config.Stage]bool{}
	old := recalled(r.run)
	for _, s := range r.run.Cluster.Config.Stages {
		st, err := r.run.ReadState(r.run.Cluster.Dir.Stage(s.Name))
		if err != nil {
			return nil, err
		}
		old.Outputs.Set(s, run.RecordedOutputs(r.run.Cluster, s, st))
		silent[s] = s.Volatile && !st.Exists // the plan heard what it will say
		if begun[s], err = r.begun(s); err != nil {
			return nil, err
		}
	}
	for _, one := range r.saved.Plan.Stages {
		at := slices.IndexFunc(chosen, func(s *config.Stage) bool { return s.Name == one.Name })
		if at < 0 {
			moved = append(moved, fmt.Sprintf("stage %s: it is not in the configuration any more", one.Name))
			continue
		}
		s := chosen[at]
		after := slices.ContainsFunc(graph.Closure(r.run.Cluster.Config.Stages, run.StageNeeds, s.Needs...), func(n *config.Stage) bool { return begun[n] || silent[n] })
		facts, err := review.Facts(old, s, review.IsPlanned(one.State))
		if err != nil && !after {
			moved = append(moved, fmt.Sprintf("stage %s: %v", s.Name, err))
		}
		if err != nil {
			continue
		}
		if differs := review.Differing(facts, one.Facts, begun[s], after); len(differs) > 0 {
			moved = append(moved, fmt.Sprintf("stage %s: %s", s.Name, strings.Join(differs, ", ")))
		}
	}
	return moved, nil
}

// recalled is this run as it would be if no stage had said anything yet.
func recalled(r *run.Run) *run.Run {
	return &run.Run{Cluster: r.Cluster, Binary: r.Binary, Outputs: run.NewOutputs(r.Cluster.Masker)}
}

// beginReviewed notes that the saved plan begins to change a stage.
func (r *creation) beginReviewed(dir *state.Stage) error {
	if r.saved == nil {
		return nil
	}
	return review.BegunNote(dir).Write(review.BegunPlan{SHA256: r.saved.Digest, Run: r.run.Id})
}

// begun reports whether the saved plan had begun to change a stage before.
func (r *creation) begun(s *config.Stage) (bool, error) {
	note, err := review.BegunNote(r.run.Cluster.Dir.Stage(s.Name)).Value()
	return note.SHA256 == r.saved.Digest, err
}
