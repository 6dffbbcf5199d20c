package plan

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/zclconf/go-cty/cty"

	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/kube"
	"github.com/ephemeral-castle/castle/internal/operation/rollout"
	"github.com/ephemeral-castle/castle/internal/ownfile"
	"github.com/ephemeral-castle/castle/internal/run"
	"github.com/ephemeral-castle/castle/internal/run/applied"
	"github.com/ephemeral-castle/castle/internal/run/recovery"
	"github.com/ephemeral-castle/castle/internal/run/review"
	"github.com/ephemeral-castle/castle/internal/run/waiting"
	"github.com/ephemeral-castle/castle/internal/state"
	"github.com/ephemeral-castle/castle/internal/terraform"
	"github.com/ephemeral-castle/castle/internal/tfeval"
)

// answerTime bounds each lookup of a plan.
const answerTime = 15 * time.Second

// planning is one run of plan.
type planning struct {
	run      *run.Run
	damaged  map[*config.Stage]error // stages whose state a create would repair first
	keeps    bool                    // save Terraform's plans
	quick    bool                    // see Options.Quick
	machines *rollout.Survey
}

// readStates reads the outputs of all stages. It leaves states that need a repair to a create.
func (p *planning) readStates() error {
	for _, s := range p.run.Cluster.Config.Stages {
		if err := p.run.Cluster.Dir.Stage(s.Name).CheckState(); err != nil {
			p.damaged[s] = err
			continue
		}
		if _, err := p.run.ReadRecorded(s); err != nil {
			return err
		}
	}
	return nil
}

// stages plans stages in parallel, but first those that only read, and then those that make machines.
func (p *planning) stages(ctx context.Context, chosen []*config.Stage) []*Stage {
	p.machines = rollout.NewSurvey(p.run)
	made := make([]*Stage, len(chosen))
	turn := func(s *config.Stage) int {
		_, machines := s.Outputs[cluster.InstanceOutput]
		switch {
		case s.Volatile:
			return 0
		case machines:
			return 1
		}
		return 2
	}
	for now := range 3 {
		var all sync.WaitGroup
		for i, s := range chosen {
			if turn(s) == now {
				made[i] = &Stage{Name: s.Name, Layer: s.Layer, config: s}
				all.Go(func() {
					if err := p.examine(ctx, made[i]); err != nil {
						made[i].State, made[i].Reason = review.Failed, err.Error()
						made[i].err = p.run.WithLog(s.Name, err)
					}
					made[i].refuse()
				})
			}
		}
		all.Wait()
	}
	return made
}

// examine plans one stage, in the order of a create's steps.
func (p *planning) examine(ctx context.Context, one *Stage) error {
	s, dir := one.config, p.run.Cluster.Dir.Stage(one.Name)
	for _, x := range append([]*config.Stage{s}, s.Needs...) {
		if err := p.damaged[x]; err != nil {
			return fmt.Errorf("the state of stage %s needs a repair first, which a create would make: %w",
				x.Name, err)
		}
	}
	inputs, err := p.run.Inputs(s)
	one.Missing = p.missing(s, err != nil)
	switch {
	case len(one.Missing) > 0:
		one.State = review.Waits
		return nil
	case err != nil:
		return err
	}
	if one.recorded, err = p.run.ReadState(dir); err != nil {
		return err
	}
	if err := p.askPreflights(ctx, one); err != nil {
		return err
	}
	if done, err := p.compare(ctx, one, dir); err != nil || done {
		return err
	}
	p.noteUpgrades(ctx, one)
	lost, err := recovery.InFlight(dir, one.recorded)
	if err != nil {
		return err
	}
	if one.unfinished, err = recovery.Unfinished(dir, one.recorded); err != nil {
		return err
	}
	one.imports = one.imports || len(lost)+len(one.unfinished) > 0
	if summary := recovery.Summary(dir, one.recorded); summary != "" {
		one.Notes = append(one.Notes, summary)
	}
	if err := p.clusterReachable(ctx, s); err != nil {
		one.State, one.Reason = review.Unreachable, err.Error()
		return ctx.Err()
	}
	adopted, err := p.adoptable(ctx, one)
	if err != nil {
		return err
	}
	return p.terraform(ctx, one, inputs, adopted)
}

// refuse keeps a refused stage from being up to date: Terraform may have compared an object of others.
func (s *Stage) refuse() {
	if len(s.Refused) > 0 && (s.State == review.UpToDate || s.State == review.Unchanged) {
		s.State = review.Refused
	}
}

// note adds a further effect of a create.
func (s *Stage) note(format string, args ...any) {
	s.Notes = append(s.Notes, fmt.Sprintf(format, args...))
}

// missing lists the outputs that a stage's module needs and that no stage has yet.
func (p *planning) missing(s *config.Stage, inputs bool) []string {
	var names []string
	outputs := p.run.Outputs.Scope(s).Outputs
	for _, edge := range s.Edges() {
		for _, value := range edge.Values {
			layer, name, _ := strings.Cut(value, ".")
			if v, has := outputs[layer][name]; inputs && (!has || !v.IsWhollyKnown()) {
				names = append(names, value)
			}
		}
	}
	for _, d := range s.Survivors { // a create decides that
		if _, decided := p.run.Outputs.Births()[d.Label]; !decided {
			names = append(names, "survives."+d.Label)
		}
	}
	kubeconfig := cluster.PlatformLayer + "." + cluster.KubeconfigOutput
	if len(s.InCluster) > 0 && p.run.Outputs.Target().Kubeconfig == nil &&
		!slices.Contains(names, kubeconfig) {
		names = append(names, kubeconfig)
	}
	return names
}

// compare compares the stage's inputs with those of its last apply, and checks its gates. Without a refresh,
// that and the revisions of its objects may show that it is up to date.
func (p *planning) compare(ctx context.Context, one *Stage, dir *state.Stage) (upToDate bool, err error) {
	if !one.recorded.Exists {
		return false, nil
	}
	old, err := dir.Fingerprint().Read()
	if err != nil || old == nil {
		return false, err
	}
	if one.Differs, err = applied.Changed(p.run, one.config, old); err != nil || len(one.Differs) > 0 {
		return false, err
	}
	if outdated, err := applied.Outdated(p.run, one.config, one.recorded); err != nil || len(outdated) > 0 {
		return false, err
	}
	one.unchanged = true
	var closed *waiting.GateError
	if p.quick {
		one.drift, closed, err = applied.Look(ctx, p.run, one.config, one.recorded)
	} else {
		closed = waiting.FirstClosedGate(ctx, p.run, one.config, one.config.ImmediateGates())
	}
	if err != nil {
		return false, err
	}
	if one.closed = closed != nil; one.closed && gate.KindOf(closed) != gate.UpgradeNeeded {
		one.note("gate %s is closed: %v", closed.Gate, closed)
	}
	if !p.quick || one.closed || !one.drift.None() {
		return false, nil // a look at all objects names what differs
	}
	p.machines.Read(ctx, one.config, one.recorded, &terraform.Plan{}, nil)
	one.State = review.UpToDate
	return true, nil
}

// noteUpgrades notes what runs with another version than the configuration names.
func (p *planning) noteUpgrades(ctx context.Context, one *Stage) {
	if !one.recorded.Exists || one.unchanged && !one.closed {
		return
	}
	asking, stop := context.WithTimeout(ctx, answerTime)
	defer stop()
	check := func(g *config.Gate) error { return waiting.CheckGate(asking, p.run, one.config, g) }
	for _, err := range run.Each(one.config.ImmediateGates(), check) {
		if gate.KindOf(err) == gate.UpgradeNeeded {
			one.note("%v", err)
		}
	}
}

// askPreflights records the objects that the preflights would refuse or import.
func (p *planning) askPreflights(ctx context.Context, one *Stage) error {
	for _, pf := range one.config.Preflights {
		findings, err := waiting.Inspect(ctx, p.run, one.config, pf)
		if err != nil {
			return run.NoAnswer(pf.Name(), err)
		}
		one.detached = append(one.detached, findings.Detached...)
		err = waiting.Refuse(p.run, one.config, pf, findings, false)
		switch {
		case errors.As(err, new(*run.PreflightError)):
			one.Refused = append(one.Refused, err.Error())
			continue
		case err != nil:
			return err
		}
		for _, own := range findings.Ours {
			one.imports = true
			one.note("%s would be imported as %s", own.Import.What, own.Import.Address)
		}
	}
	return nil
}

// clusterReachable checks the cluster for a stage that has resources in it. The helm provider treats an
// unreachable cluster as empty, and would plan all releases anew.
func (p *planning) clusterReachable(ctx context.Context, s *config.Stage) error {
	if len(s.InCluster) == 0 {
		return nil
	}
	asking, stop := context.WithTimeout(ctx, answerTime)
	defer stop()
	err := kube.Reachable(p.run.Outputs.Target().Kubeconfig).Check(asking)
	if err == nil {
		_, err = os.Lstat(p.run.Cluster.Dir.Kubeconfig()) // the providers read that
	}
	return err
}

// adoptable looks up the stage's adoptions once and returns the addresses of those that exist.
func (p *planning) adoptable(ctx context.Context, one *Stage) (found []string, err error) {
	all, err := waiting.Adoptions(p.run, one.config, one.recorded, "")
	if err != nil {
		return nil, err
	}
	for _, a := range all {
		if a.Lookup == nil {
			one.imports = true
			one.note("%s would be adopted if it exists", a.Address)
			continue
		}
		asking, stop := context.WithTimeout(ctx, answerTime)
		there, err := a.Lookup(asking)
		stop()
		one.imports = one.imports || there || err != nil
		if err != nil {
			one.note("%s would be adopted if it exists, but its lookup failed: %v", a.Address, err)
		} else if there {
			found = append(found, a.Address)
		}
	}
	return found, nil
}

// terraform plans the stage with Terraform and keeps the names of the changes.
func (p *planning) terraform(ctx context.Context, one *Stage, inputs map[string]cty.Value,
	adopted []string) (err error) {
	release, err := p.run.Slot(ctx)
	if err != nil {
		return err
	}
	defer release()
	work, err := p.run.OpenWorkspace(one.Name, one.Layer)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, work.Close()) }()
	if err := work.Prepare(ctx, one.config, inputs); err != nil {
		return err
	}
	outdated, err := applied.Outdated(p.run, one.config, one.recorded)
	if err != nil {
		return err
	}
	var plan *terraform.Plan
	err = work.Step("plan", func() (err error) {
		o := terraform.PlanOptions{Replace: slices.Concat(one.unfinished, outdated)}
		plan, err = work.Root.Plan(ctx, o)
		return err
	})
	if err != nil {
		return run.During("plan", err)
	}
	defer func() { err = errors.Join(err, plan.Discard()) }()
	if err := p.readOutputs(ctx, one, plan); err != nil {
		return err
	}
	if err := p.checkMachines(ctx, one, plan, outdated); err != nil {
		return err
	}
	p.machines.Read(ctx, one.config, one.recorded, plan, outdated)
	changes, left, err := review.Summarize(ctx, plan, plan.Changes, adopted)
	if err != nil {
		return err
	}
	one.DriftLeft = left
	review.MarkLost(changes, one.detached)
	review.NameMachines(changes, one.recorded)
	restored, unknown := p.releases(ctx, one, changes)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	one.conclude(plan.Empty, append(changes, restored...), unknown)
	if p.keeps && !one.imports && !plan.Empty {
		one.saved, err = ownfile.ReadFile(plan.File)
	}
	return err
}

// checkMachines records that a create would refuse to take nodes away, or to harm their machines.
func (p *planning) checkMachines(ctx context.Context, one *Stage, plan *terraform.Plan,
	outdated []string) error {
	intent, err := p.run.Cluster.Dir.Stage(one.Name).Intent().Read()
	if err != nil {
		return err
	}
	pending, err := review.CheckMachines(ctx, p.run, one.recorded, intent, plan, outdated)
	for _, m := range pending {
		one.note("%s; %s makes it", m, p.run.Cluster.Command("rollout"))
	}
	if errors.As(err, new(run.Refusal)) {
		one.Refused = append(one.Refused, err.Error())
		return nil
	}
	return err
}

// conclude sets the stage's state and changes after Terraform has planned it, and its releases have been
// compared except for those in unknown.
func (s *Stage) conclude(empty bool, changes []review.Change, unknown error) {
	s.Changes = changes
	for _, c := range changes {
		if s.Counts == nil {
			s.Counts = map[string]int{}
		}
		s.Counts[c.Action]++
	}
	empty = empty && len(changes) == 0
	switch {
	case !empty && s.unchanged && !s.config.Volatile:
		s.State = review.Drifted
	case !empty:
		s.State = review.Changes
	case unknown != nil:
		s.State, s.Reason = review.Unknown, unknown.Error()
		return
	case s.unchanged && !s.closed:
		s.State = review.UpToDate
	default:
		s.State = review.Unchanged
	}
	if unknown != nil {
		s.note("unknown: %v", unknown)
	}
	if !empty && len(s.drift.Differences) > 0 {
		s.note("%s", s.drift)
	}
}

// readOutputs keeps the planned outputs of a stage that only reads, or makes machines, for other stages.
func (p *planning) readOutputs(ctx context.Context, one *Stage, plan *terraform.Plan) error {
	if _, machines := one.config.Outputs[cluster.InstanceOutput]; machines {
		p.predictInstances(one, plan)
		return nil
	}
	if plan.Empty || !one.config.Volatile || len(plan.Changes) > 0 {
		return nil
	}
	values, known, err := plan.Outputs(ctx)
	if err != nil || !known {
		return err
	}
	outputs := map[string]state.Output{}
	for name, v := range values {
		outputs[name] = state.Output{Value: v}
	}
	p.run.Outputs.Set(one.config, run.WithNulls(one.config, outputs))
	one.outputsRead = true
	return nil
}

// predictInstances sets the instances as a create would record them: each machine that it makes is new.
func (p *planning) predictInstances(one *Stage, plan *terraform.Plan) {
	outputs := run.RecordedOutputs(p.run.Cluster, one.config, one.recorded)
	instances := map[string]cty.Value{}
	maps.Copy(instances, tfeval.Map(outputs[cluster.InstanceOutput].Value))
	for _, c := range plan.Changes {
		name, keyed := terraform.KeyOf(c.Address)
		if makes := c.Action == "create" || c.Action == "replace"; makes && keyed &&
			cluster.Platforms().IsMachine(c.Type) {
			instances[name] = cty.StringVal(p.run.ID)
		}
	}
	outputs = maps.Clone(outputs)
	outputs[cluster.InstanceOutput] = state.Output{Value: cty.ObjectVal(instances)}
	p.run.Outputs.Set(one.config, outputs)
	one.outputsRead = true
}
