package create

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/siderolabs/gen/xslices"

	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/event"
	"github.com/ephemeral-castle/castle/internal/graph"
	"github.com/ephemeral-castle/castle/internal/kube/release"
	"github.com/ephemeral-castle/castle/internal/run"
	"github.com/ephemeral-castle/castle/internal/run/applied"
	"github.com/ephemeral-castle/castle/internal/run/review"
	"github.com/ephemeral-castle/castle/internal/state"
	"github.com/ephemeral-castle/castle/internal/terraform"
)

// savedPlan is the reviewed plan that a create applies. Castle compares its facts before the first change,
// and again before each stage: earlier stages may have changed the outputs.
type savedPlan struct {
	run     *run.Run
	plan    *review.SavedPlan
	refuses bool                         // see Options.RefuseLosses
	stored  map[string]*terraform.Stored // what Terraform's own plans contain, by stage
	old     *run.Run                     // with the outputs before the first change
}

// verify reads Terraform's own plan of each stage, from which all else follows. It refuses one that is not of
// the stage's module, or has other changes than the list that was reviewed.
func (p *savedPlan) verify(ctx context.Context, c *creation, chosen []*config.Stage) error {
	p.stored = map[string]*terraform.Stored{}
	var forged []string
	for _, s := range chosen {
		one := p.plan.Stage(s.Name)
		if one.Saved == nil {
			continue
		}
		work, err := c.workspace(ctx, s)
		if err == nil {
			p.stored[s.Name], err = work.Root.Inspect(ctx, one.Saved)
		}
		if err != nil {
			return fmt.Errorf("stage %s: %w", s.Name, err)
		}
		stored := p.stored[s.Name]
		if differing := slices.Concat(stored.Differing, one.Unlisted(stored.Changes)); len(differing) > 0 {
			forged = append(forged, "stage "+s.Name+": "+strings.Join(differing, ", "))
		}
	}
	switch {
	case len(forged) > 0:
		return &review.StaleError{File: p.plan.Path, Moved: forged, Forged: true, Again: p.planAgain()}
	case p.refuses:
		return p.refuseLosses(chosen)
	}
	return nil
}

// follow refuses the plan if anything that it depends on has changed.
func (p *savedPlan) follow(ctx context.Context, chosen []*config.Stage) error {
	moved, err := p.changedSince(ctx, chosen)
	if err != nil {
		return err
	}
	if len(moved) > 0 {
		return p.stale(moved...)
	}
	p.run.Emit(event.Event{
		Kind: event.Reviewed,
		Text: fmt.Sprintf("as planned %s in %s (sha256 %s)", p.plan.Made.Local().Format(time.DateTime),
			p.plan.Path, p.plan.Digest),
		Reviewed: &event.ReviewedPlan{File: p.plan.Path, SHA256: p.plan.Digest, Run: p.plan.Run,
			Made: p.plan.Made},
	})
	return nil
}

// refuseLosses refuses the plan if it replaces or destroys what exists.
func (p *savedPlan) refuseLosses(chosen []*config.Stage) error {
	var losses []review.Loss
	for _, s := range chosen {
		dir := p.run.Cluster.Dir.Stage(s.Name)
		st, err := p.run.ReadState(dir)
		if err != nil {
			return err
		}
		intent, err := dir.Intent().Read()
		if err != nil {
			return err
		}
		begun, err := p.begun(s)
		if err != nil {
			return err
		}
		loss := review.Loss{Stage: s.Name, Layer: s.Layer}
		isTainted := func(c terraform.Change) bool {
			return slices.ContainsFunc(st.Resources,
				func(r state.Resource) bool { return r.Address == c.Address && r.Tainted })
		}
		outdated, err := applied.Outdated(p.old, s, st)
		if err != nil {
			return err
		}
		isLost := func(c terraform.Change) bool { // what it had configured is gone
			return slices.Contains(outdated, c.Address) || p.configuresNew(s, c)
		}
		changes := slices.DeleteFunc(slices.Clone(p.changes(s.Name)), isTainted)
		changes = slices.DeleteFunc(changes, isLost)
		for _, c := range review.Losses(changes, st, intent) {
			loss.Changes = append(loss.Changes, review.Change{Address: c.Address, Action: c.Action})
		}
		review.NameMachines(loss.Changes, st)
		for _, c := range p.plan.Stage(s.Name).Changes {
			if len(c.Lost) > 0 {
				loss.Changes = append(loss.Changes, c)
			}
		}
		if len(loss.Changes) > 0 && !begun { // a killed run applied the rest of it
			losses = append(losses, loss)
		}
	}
	if len(losses) > 0 {
		return &review.LossesError{File: p.plan.Path, Losses: losses}
	}
	return nil
}

// configuresNew reports whether a change configures a machine that the plan creates: the former one is gone.
func (p *savedPlan) configuresNew(s *config.Stage, c terraform.Change) bool {
	resource, key, _ := strings.Cut(c.Address, `["`)
	replaces := func(r *config.Replace) bool { return r.Address == resource }
	creates := func(made terraform.Change) bool {
		return made.Action == "create" && cluster.Platforms().IsMachine(made.Type) &&
			strings.HasSuffix(made.Address, `["`+key)
	}
	return slices.ContainsFunc(s.Replaces, replaces) &&
		slices.ContainsFunc(s.Needs, func(n *config.Stage) bool {
			stored := p.stored[n.Name]
			return stored != nil && slices.ContainsFunc(stored.Changes, creates)
		})
}

// changes returns the changes of a stage's plan: those of Terraform's own, if there is one.
func (p *savedPlan) changes(stage string) (changes []terraform.Change) {
	if stored := p.stored[stage]; stored != nil {
		return stored.Changes
	}
	for _, c := range p.plan.Stage(stage).Changes {
		changes = append(changes, terraform.Change{Address: c.Address, Action: c.Action, Reason: c.Reason,
			Phase: terraform.Planned})
	}
	return changes
}

func (p *savedPlan) stale(moved ...string) error {
	return &review.StaleError{File: p.plan.Path, Moved: moved, Again: p.planAgain()}
}

// planAgain is the command that saves a new plan of the same stages.
func (p *savedPlan) planAgain() string {
	command := p.run.Cluster.Command("plan")
	if len(p.plan.Stages) < len(p.run.Cluster.Config.Stages) {
		names := xslices.Map(p.plan.Stages, func(s review.SavedStage) string { return s.Name })
		command += " --only " + strings.Join(names, ",")
	}
	return command + " --plan-out " + p.plan.Path
}

// changedSince lists the differences from the saved plan. The state of a stage that this plan has begun to
// change may differ; later stages are compared when their turn comes.
func (p *savedPlan) changedSince(ctx context.Context, chosen []*config.Stage) (
	moved []string, err error) {
	c := p.run.Cluster
	differ := func(format string, args ...any) { moved = append(moved, fmt.Sprintf(format, args...)) }
	if p.plan.Castle != c.Options.Version {
		differ("castle: %s planned it, this is %s", p.plan.Castle, c.Options.Version)
	}
	now, err := review.ConfigurationFacts(p.run)
	if err != nil {
		return nil, err
	}
	moved = append(moved, now.Changed(p.plan.Facts)...)
	// unsettled stages have begun, or will output something only now that they run.
	begun, unsettled := map[*config.Stage]bool{}, map[*config.Stage]bool{}
	old := run.Observe(ctx, c)
	p.old = old
	old.Binary = p.run.Binary
	old.Outputs.Compute(chosen)
	for _, s := range c.Config.Stages {
		st, err := p.run.ReadState(c.Dir.Stage(s.Name))
		if err != nil {
			return nil, err
		}
		old.Outputs.Set(s, run.RecordedOutputs(c, s, st))
		if begun[s], err = p.begun(s); err != nil {
			return nil, err
		}
		reads := p.plan.Stage(s.Name)
		unsettled[s] = begun[s] || s.Volatile && (!st.Exists || reads != nil && review.HasWork(reads.State))
	}
	for _, one := range p.plan.Stages {
		at := slices.IndexFunc(chosen, func(s *config.Stage) bool { return s.Name == one.Name })
		if at < 0 {
			differ("stage %s: it is not in the configuration any more", one.Name)
			continue
		}
		s := chosen[at]
		needs := graph.Closure(c.Config.Stages, run.StageNeeds, s.Needs...)
		after := slices.ContainsFunc(needs, func(n *config.Stage) bool { return unsettled[n] })
		facts, err := review.Facts(old, s, review.IsPlanned(one.State))
		switch {
		case err != nil && !after:
			differ("stage %s: %v", s.Name, err)
		case err == nil:
			differs := review.Differing(facts, one.Facts, begun[s], after)
			if !applied.IsPrepared(c.Dir.Stage(s.Name)) { // init chooses them, and the approval compares
				differs = slices.DeleteFunc(differs, review.IsProvider)
			}
			if len(differs) > 0 {
				differ("stage %s: %s", s.Name, strings.Join(differs, ", "))
			}
		}
	}
	return moved, nil
}

// begin notes that the plan begins to change a stage. Without a plan it does nothing.
func (p *savedPlan) begin(dir *state.Stage) error {
	if p == nil {
		return nil
	}
	return review.BegunNote(dir).Write(review.BegunPlan{SHA256: p.plan.Digest, Run: p.run.ID})
}

// isDue reports whether the plan changes a stage and has not begun to.
func (p *savedPlan) isDue(s *config.Stage) (bool, error) {
	if p == nil {
		return false, nil
	}
	one := p.plan.Stage(s.Name)
	if one == nil || !review.HasWork(one.State) {
		return false, nil
	}
	begun, err := p.begun(s)
	return !begun, err
}

// begun reports whether the plan had begun to change a stage before.
func (p *savedPlan) begun(s *config.Stage) (bool, error) {
	note, err := review.BegunNote(p.run.Cluster.Dir.Stage(s.Name)).Value()
	return note.SHA256 == p.plan.Digest, err
}

// approval holds the changes that the plan allows for one stage. If nothing differs from the review, castle
// applies Terraform's own saved plan. Otherwise it plans anew, and the new plan may do no more:
//
//   - A stage that could not be planned, because its inputs were not known, may create, and change nothing
//     that exists.
//   - One that imports something first, or that this plan has begun and not finished, may do what remains of
//     the reviewed changes.
//   - One that had nothing to do may do nothing.
type approval struct {
	stage   *review.SavedStage
	changes []terraform.Change // of its saved plan
	before  *state.State       // before anything was imported
	exact   bool               // its saved plan fits
}

func (a *approval) isExact() bool { return a != nil && a.exact }

// approve returns the plan's approval for a stage whose work directory is ready; nil without a plan.
func (p *savedPlan) approve(s *config.Stage, root *terraform.Root, before *state.State) (*approval, error) {
	if p == nil {
		return nil, nil
	}
	a := &approval{stage: p.plan.Stage(s.Name), before: before}
	if a.stage == nil { // a volatile one that is read again
		a.stage = &review.SavedStage{Name: s.Name, State: review.UpToDate}
	}
	if a.stage.Saved == nil && a.stage.State != review.Unchanged {
		return a, nil
	}
	now, factsErr := review.Facts(p.run, s, true)
	begun, err := p.begun(s)
	if err = errors.Join(factsErr, err); err != nil {
		return nil, err
	}
	a.exact = len(now.Changed(a.stage.Facts)) == 0
	differs := review.Differing(now, a.stage.Facts, begun, false)
	if stored := p.stored[s.Name]; stored != nil && len(differs) == 0 {
		a.changes = stored.Changes
		differs, err = stored.DifferingInputs(root)
	}
	if err == nil && len(differs) > 0 && a.stage.Saved != nil {
		err = p.stale(strings.Join(differs, ", "))
	}
	return a, err
}

// check refuses a plan that was made in this run and does more than was reviewed. With yes, a stage that
// could not be planned may do anything.
func (p *savedPlan) check(ctx context.Context, try *attempt, yes bool) error {
	a, plan := try.approved, try.plan
	unplanned := !review.IsPlanned(a.stage.State)
	if unplanned && yes {
		return nil
	}
	unseen, err := try.emptied(ctx)
	unseen = slices.DeleteFunc(unseen, func(now review.Change) bool {
		return slices.ContainsFunc(a.stage.Changes, func(was review.Change) bool {
			return was.Address == now.Address && slices.Equal(was.Lost, now.Lost)
		})
	})
	switch {
	case err != nil:
		return err
	case len(unseen) > 0:
		return p.unreviewed(unseen, unplanned)
	case a.exact:
		return nil
	}
	more := slices.DeleteFunc(slices.Clone(plan.Changes), func(c terraform.Change) bool {
		if unplanned {
			return review.OnlyCreates(c, !a.before.Has(c.Address))
		}
		return review.IsRemaining(c, a.stage.Changes)
	})
	if len(more) == 0 && unplanned { // a further attempt may do what remains of this plan
		a.stage.State = review.Changes
		a.stage.Changes, _, err = review.Summarize(ctx, plan, plan.Changes, nil)
	}
	if len(more) == 0 {
		return err
	}
	changes, _, err := review.Summarize(ctx, plan, more, nil)
	if err != nil {
		return err
	}
	return p.unreviewed(changes, unplanned)
}

// checkRestore refuses to restore objects of a release that were not reviewed. A stage that could not be
// planned may make absent ones, and with yes all of them.
func (p *savedPlan) checkRestore(a *approval, differing []release.Difference, yes bool) error {
	unplanned := !review.IsPlanned(a.stage.State)
	var more []review.Change
	for _, d := range differing {
		reviewed := func(c review.Change) bool {
			return c.Action == review.Restore && c.Address == d.Object.String()
		}
		if !slices.ContainsFunc(a.stage.Changes, reviewed) && !(unplanned && (yes || d.Absent)) {
			more = append(more, review.Restored(d))
		}
	}
	if len(more) == 0 {
		return nil
	}
	return p.unreviewed(more, unplanned)
}

func (p *savedPlan) unreviewed(changes []review.Change, unplanned bool) error {
	e := &review.UnreviewedError{File: p.plan.Path, Changes: changes,
		Fix: "plan again and have that reviewed: " + p.planAgain()}
	if unplanned {
		e.Fix += "; or do it all the same: --yes"
	}
	return e
}
