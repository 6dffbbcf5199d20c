package castle

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/kube"
	"github.com/ephemeral-castle/castle/internal/state"
)

// planning is a creation that only says what it would do.
type planning struct {
	*run
	unsound map[*config.Stage]error // whose state a create would repair first
	keeps   bool                    // Terraform's plans are to be saved
}

// plannedStage is a StagePlan, why it failed, and what Terraform has saved of it.
type plannedStage struct {
	StagePlan
	err     error
	imports bool // something is imported first, and no plan made before fits then
	saved   []byte
}

// recallSound hears what the stages have said last. A state that has to be
// repaired is left to a create.
func (p *planning) recallSound() error {
	for _, s := range p.cluster.Stages {
		dir := p.dir.Stage(s.Name)
		if err := dir.CheckState(); err != nil {
			p.unsound[s] = err
			continue
		}
		st, err := p.readState(dir)
		if err != nil {
			return err
		}
		p.said.put(s, p.outputsOf(s, st))
	}
	return nil
}

// answerAtOnce is how long somebody may take to answer a plan's question.
const answerAtOnce = 15 * time.Second

// stages plans all at once, but first those that read something.
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
	one := plannedStage{StagePlan: StagePlan{Name: s.Name, Layer: s.Layer, State: PlanFailed}}
	if one.err = p.look(ctx, s, &one); one.err != nil {
		one.State, one.Reason = PlanFailed, one.err.Error()
		path := p.files.LogPath(s.Name)
		if info, err := os.Stat(path); err == nil && info.Size() > 0 {
			one.err = fmt.Errorf("%w\n  log: %s", one.err, path)
		}
	}
	return one
}

// look finds out what a create would do with one stage, in the order in which it would.
func (p *planning) look(ctx context.Context, s *config.Stage, one *plannedStage) error {
	for _, x := range append([]*config.Stage{s}, s.Needs...) {
		if err := p.unsound[x]; err != nil {
			return fmt.Errorf("the state of stage %s needs a repair first, which a create would make: %w", x.Name, err)
		}
	}
	inputs, diags := s.Inputs(p.said.scope(s))
	one.Missing = p.missing(s, diags.HasErrors())
	switch {
	case len(one.Missing) > 0:
		one.State = PlanWaits
		return nil
	case diags.HasErrors():
		return diags
	}
	p.hide(s, inputs)
	st, err := p.readState(p.dir.Stage(s.Name))
	if err != nil {
		return err
	}
	if err := p.askPreflights(ctx, s, one); err != nil {
		return err
	}
	if current, err := p.nothingToDo(ctx, s, st, &one.StagePlan); err != nil || current {
		return err
	}
	if intent, err := p.dir.Stage(s.Name).Intent().Read(); err != nil {
		return err
	} else if intent != nil {
		one.Notes = append(one.Notes, cutShort(p.dir.Stage(s.Name), st))
		lost, err := inFlight(p.dir.Stage(s.Name), st)
		if err != nil {
			return err
		}
		one.imports = one.imports || len(lost) > 0
	}
	if err := p.answers(ctx, s); err != nil {
		one.State, one.Reason = PlanUnreachable, err.Error()
		return ctx.Err()
	}
	adopted, err := p.adoptable(ctx, s, st, one)
	if err != nil {
		return err
	}
	return p.terraform(ctx, s, inputs, adopted, one)
}

// missing names the outputs that a stage's module would be given and that no
// stage has said yet.
func (p *planning) missing(s *config.Stage, inputs bool) []string {
	var names []string
	outputs := p.said.scope(s).Outputs
	for _, edge := range s.Edges() {
		for _, value := range edge.Values {
			layer, name, _ := strings.Cut(value, ".")
			if _, said := outputs[layer][name]; inputs && !said {
				names = append(names, value)
			}
		}
	}
	kubeconfig := platformLayer + "." + kubeconfigOutput
	if len(s.InCluster) > 0 && p.said.target().Kubeconfig == nil && !slices.Contains(names, kubeconfig) {
		names = append(names, kubeconfig)
	}
	return names
}

// nothingToDo reports whether a create would leave the stage alone.
func (p *planning) nothingToDo(ctx context.Context, s *config.Stage, st *state.State, one *StagePlan) (bool, error) {
	if !st.Exists {
		return false, nil
	}
	old, err := p.dir.Stage(s.Name).Fingerprint().Read()
	if err != nil || old == nil {
		return false, err
	}
	if one.Differs, err = p.changed(s, old); err != nil || len(one.Differs) > 0 {
		return false, err
	}
	if closed := p.ask(ctx, s, earlyGates(s)); closed != nil {
		one.Notes = append(one.Notes, fmt.Sprintf("gate %s is closed: %v", closed.Gate, closed))
		return false, nil
	}
	one.State = PlanCurrent
	return true, nil
}

// askPreflights notes what would be refused, and what would be taken over.
func (p *planning) askPreflights(ctx context.Context, s *config.Stage, one *plannedStage) error {
	for _, pf := range s.Preflights {
		findings, err := p.inspect(ctx, s, pf)
		if err != nil {
			return unanswered(pf.Name(), err)
		}
		refused := new(PreflightError)
		switch err := p.refuse(s, pf, findings, false); {
		case errors.As(err, &refused):
			one.Refused = append(one.Refused, err.Error())
			continue
		case err != nil:
			return err
		}
		one.imports = one.imports || len(findings.Ours) > 0
		for _, own := range findings.Ours {
			one.Notes = append(one.Notes, fmt.Sprintf("%s would be taken over as %s", own.Import.What, own.Import.Address))
		}
	}
	return nil
}

// answers asks whether the cluster is there, for a stage that Terraform would
// look for in it: the helm provider takes one that does not answer for one
// without releases, and would plan all of them anew.
func (p *planning) answers(ctx context.Context, s *config.Stage) error {
	if len(s.InCluster) == 0 {
		return nil
	}
	asking, stop := context.WithTimeout(ctx, answerAtOnce)
	defer stop()
	err := kube.Reachable(p.said.target().Kubeconfig).Check(asking)
	if err == nil {
		_, err = os.Stat(p.dir.Kubeconfig()) // the providers read that
	}
	return err
}

// adoptable asks once what an adoption would find, and returns the addresses.
func (p *planning) adoptable(ctx context.Context, s *config.Stage, st *state.State, one *plannedStage) (found []string, err error) {
	for _, a := range s.Adopts {
		if has(st, a.Address) {
			continue
		}
		id, diags := a.ID(s, p.said.scope(s))
		if diags.HasErrors() {
			return nil, diags
		}
		switch {
		case id == "":
			continue
		case a.Exists == nil:
			one.imports = true
			one.Notes = append(one.Notes, a.Address+" would be adopted if it exists")
			continue
		}
		question, err := p.question(s, a)
		if err != nil {
			return nil, fmt.Errorf("adopt %s: %w", a.Address, err)
		}
		asking, stop := context.WithTimeout(ctx, answerAtOnce)
		there, err := question.Lookup(asking, known(st))
		stop()
		switch {
		case err != nil:
			one.imports = true
			one.Notes = append(one.Notes, fmt.Sprintf("%s would be adopted if it exists, which cannot be told now: %v", a.Address, err))
		case there:
			one.imports = true
			found = append(found, a.Address)
		}
	}
	return found, nil
}
