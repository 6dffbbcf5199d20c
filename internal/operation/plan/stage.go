package plan

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/kube"
	"github.com/ephemeral-castle/castle/internal/run"
	"github.com/ephemeral-castle/castle/internal/run/recovery"
	"github.com/ephemeral-castle/castle/internal/run/review"
	"github.com/ephemeral-castle/castle/internal/state"
)

// planning is one run of plan.
type planning struct {
	run     *run.Run
	damaged map[*config.Stage]error // stages whose state a create would repair first
	keeps   bool                    // save Terraform's plans
}

// plannedStage is a stage's plan, its error, and Terraform's saved plan.
type plannedStage struct {
	plan    Stage
	err     error
	imports bool // an import comes first and makes any earlier plan outdated
	saved   []byte
}

// readStates reads the outputs of all stages. It leaves states that need a repair to a create.
func (p *planning) readStates() error {
	for _, s := range p.run.Cluster.Config.Stages {
		dir := p.run.Cluster.Dir.Stage(s.Name)
		if err := dir.CheckState(); err != nil {
			p.damaged[s] = err
			continue
		}
		if _, err := run.ReadRecorded(p.run, s); err != nil {
			return err
		}
	}
	return nil
}

// answerTime bounds each lookup of a plan.
const answerTime = 15 * time.Second

// stages plans all stages in parallel, but those that only read before the others.
func (p *planning) stages(ctx context.Context, chosen []*config.Stage) []plannedStage {
	made := make([]plannedStage, len(chosen))
	for _, volatile := range []bool{true, false} {
		var all sync.WaitGroup
		for i, s := range chosen {
			if s.Volatile == volatile {
				all.Go(func() { made[i] = p.stage(ctx, s) })
			}
		}
		all.Wait()
	}
	return made
}

func (p *planning) stage(ctx context.Context, s *config.Stage) plannedStage {
	one := plannedStage{plan: Stage{Name: s.Name, Layer: s.Layer, State: review.Failed}}
	if one.err = p.examine(ctx, s, &one); one.err != nil {
		one.plan.State, one.plan.Reason = review.Failed, one.err.Error()
		path := p.run.Files.LogPath(s.Name)
		if info, err := os.Stat(path); err == nil && info.Size() > 0 {
			one.err = fmt.Errorf("%w\n  log: %s", one.err, path)
		}
	}
	return one
}

// examine plans one stage, in the order of a create's steps.
func (p *planning) examine(ctx context.Context, s *config.Stage, one *plannedStage) error {
	for _, x := range append([]*config.Stage{s}, s.Needs...) {
		if err := p.damaged[x]; err != nil {
			return fmt.Errorf("the state of stage %s needs a repair first, which a create would make: %w",
				x.Name, err)
		}
	}
	inputs, err := run.Inputs(p.run, s)
	one.plan.Missing = p.missing(s, err != nil)
	switch {
	case len(one.plan.Missing) > 0:
		one.plan.State = review.Waits
		return nil
	case err != nil:
		return err
	}
	st, err := p.run.ReadState(p.run.Cluster.Dir.Stage(s.Name))
	if err != nil {
		return err
	}
	if err := p.askPreflights(ctx, s, one); err != nil {
		return err
	}
	if current, err := p.upToDate(ctx, s, st, &one.plan); err != nil || current {
		return err
	}
	if intent, err := p.run.Cluster.Dir.Stage(s.Name).Intent().Read(); err != nil {
		return err
	} else if intent != nil {
		one.plan.Notes = append(one.plan.Notes, recovery.Summary(p.run.Cluster.Dir.Stage(s.Name), st))
		lost, err := recovery.InFlight(p.run.Cluster.Dir.Stage(s.Name), st)
		if err != nil {
			return err
		}
		one.imports = one.imports || len(lost) > 0
	}
	if err := p.clusterReachable(ctx, s); err != nil {
		one.plan.State, one.plan.Reason = review.Unreachable, err.Error()
		return ctx.Err()
	}
	adopted, err := p.adoptable(ctx, s, st, one)
	if err != nil {
		return err
	}
	return p.terraform(ctx, s, inputs, adopted, one)
}

// missing lists the outputs that a stage's module needs and that no stage has yet.
func (p *planning) missing(s *config.Stage, inputs bool) []string {
	var names []string
	outputs := p.run.Outputs.Scope(s).Outputs
	for _, edge := range s.Edges() {
		for _, value := range edge.Values {
			layer, name, _ := strings.Cut(value, ".")
			if _, outputs := outputs[layer][name]; inputs && !outputs {
				names = append(names, value)
			}
		}
	}
	kubeconfig := cluster.PlatformLayer + "." + cluster.KubeconfigOutput
	if len(s.InCluster) > 0 && p.run.Outputs.Target().Kubeconfig == nil &&
		!slices.Contains(names, kubeconfig) {
		names = append(names, kubeconfig)
	}
	return names
}

// upToDate reports whether a create would leave the stage unchanged.
func (p *planning) upToDate(ctx context.Context, s *config.Stage, st *state.State, one *Stage) (bool, error) {
	if !st.Exists {
		return false, nil
	}
	old, err := p.run.Cluster.Dir.Stage(s.Name).Fingerprint().Read()
	if err != nil || old == nil {
		return false, err
	}
	if one.Differs, err = run.Changed(p.run, s, old); err != nil || len(one.Differs) > 0 {
		return false, err
	}
	if closed := run.FirstClosedGate(ctx, p.run, s, run.ImmediateGates(s)); closed != nil {
		one.Notes = append(one.Notes, fmt.Sprintf("gate %s is closed: %v", closed.Gate, closed))
		return false, nil
	}
	one.State = review.UpToDate
	return true, nil
}

// askPreflights records the objects that the preflights would refuse or import.
func (p *planning) askPreflights(ctx context.Context, s *config.Stage, one *plannedStage) error {
	for _, pf := range s.Preflights {
		findings, err := run.Inspect(ctx, p.run, s, pf)
		if err != nil {
			return run.NoAnswer(pf.Name(), err)
		}
		refused := new(run.PreflightError)
		switch err := run.Refuse(p.run, s, pf, findings, false); {
		case errors.As(err, &refused):
			one.plan.Refused = append(one.plan.Refused, err.Error())
			continue
		case err != nil:
			return err
		}
		one.imports = one.imports || len(findings.Ours) > 0
		for _, own := range findings.Ours {
			one.plan.Notes = append(one.plan.Notes,
				fmt.Sprintf("%s would be imported as %s", own.Import.What, own.Import.Address))
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
		_, err = os.Stat(p.run.Cluster.Dir.Kubeconfig()) // the providers read that
	}
	return err
}

// adoptable looks up the stage's adoptions once and returns the addresses of those that exist.
func (p *planning) adoptable(ctx context.Context, s *config.Stage, st *state.State,
	one *plannedStage) (found []string, err error) {
	all, err := run.Adoptions(p.run, s, st)
	if err != nil {
		return nil, err
	}
	for _, a := range all {
		if a.Lookup == nil {
			one.imports = true
			one.plan.Notes = append(one.plan.Notes, a.Address+" would be adopted if it exists")
			continue
		}
		asking, stop := context.WithTimeout(ctx, answerTime)
		there, err := a.Lookup(asking, cluster.Known(st))
		stop()
		switch {
		case err != nil:
			one.imports = true
			one.plan.Notes = append(one.plan.Notes,
				fmt.Sprintf("%s would be adopted if it exists, but its lookup failed: %v", a.Address, err))
		case there:
			one.imports = true
			found = append(found, a.Address)
		}
	}
	return found, nil
}
