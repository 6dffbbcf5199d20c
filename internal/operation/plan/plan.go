// Package plan reports the changes of a create, stage by stage, and saves them on request. It applies,
// imports and records nothing.
package plan

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/run"
	"github.com/ephemeral-castle/castle/internal/run/review"
)

// Options narrow a plan and name the file to save it in.
type Options struct {
	Selection cluster.Selection
	Out       string // the file that it is saved in; none if empty
}

// Plan reports the changes that a create would make now. Its JSON is stable for scripts: fields may be
// added, none changes its meaning.
type Plan struct {
	Cluster  string             `json:"cluster"`
	Platform string             `json:"platform"`
	Code     []CodeChange       `json:"code_changed"` // since it was applied
	Stages   []Stage            `json:"stages"`       // by layer, then as cluster.hcl lists them
	Unlisted []cluster.Unlisted `json:"unlisted"`     // that a create leaves as they are
	Saved    *SavedPlan         `json:"saved,omitempty"`
}

// Stage is one stage's part of a Plan.
type Stage struct {
	Name      string          `json:"name"`
	Layer     string          `json:"layer"`
	State     string          `json:"state"`
	Reason    string          `json:"reason,omitempty"`
	Missing   []string        `json:"missing,omitempty"`    // outputs: "platform.kubeconfig"
	Differs   []string        `json:"differs,omitempty"`    // parts that changed since the last good apply
	Refused   []string        `json:"refused,omitempty"`    // by its preflights: create would stop here
	Notes     []string        `json:"notes,omitempty"`      // further effects of a create
	Counts    map[string]int  `json:"counts,omitempty"`     // of Changes, by action
	Changes   []review.Change `json:"changes,omitempty"`    // by address
	OnEarlier []string        `json:"on_earlier,omitempty"` // stages that change first

	outputsRead bool // its planned outputs are inputs of the others' plans
}

// Run plans a create. It applies, imports and records nothing. A stage whose inputs are not known yet
// waits, unless they come from a stage that only reads. The error joins all stages that could not be
// planned; the Plan holds those too. The Plan is nil if castle could read nothing or could not save it.
func Run(ctx context.Context, c *cluster.Cluster, o Options) (_ *Plan, err error) {
	chosen, err := o.Selection.Stages(c.Config.Stages)
	if err != nil {
		return nil, err
	}
	warnings, err := c.CheckConfig()
	if err != nil {
		return nil, err
	}
	r, err := run.Begin(ctx, c, "plan")
	if err != nil {
		return nil, err
	}
	defer func() { err = r.End(err) }()
	for _, d := range warnings {
		r.Notice(d)
	}
	p := &planning{run: r, damaged: map[*config.Stage]error{}, keeps: o.Out != ""}
	if err := p.readStates(); err != nil {
		return nil, err
	}
	plan := &Plan{
		Cluster: c.Config.Name, Platform: c.Config.Platform, Code: []CodeChange{},
		Unlisted: []cluster.Unlisted{},
	}
	if o.Selection.All() {
		if plan.Unlisted, err = r.Cluster.UnlistedStages(); err != nil {
			return nil, err
		}
	}
	for _, s := range chosen {
		code, err := codeChange(c, s)
		if err != nil {
			return nil, err
		}
		if code != nil {
			plan.Code = append(plan.Code, *code)
		}
	}
	var errs []error
	made := p.stages(ctx, chosen)
	for i, one := range made {
		if one.err != nil {
			errs = append(errs, fmt.Errorf("stage %s: %w", chosen[i].Name, one.err))
		}
		plan.Stages = append(plan.Stages, one.plan)
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx) // an interrupted plan is incomplete
	}
	switch {
	case o.Out != "" && len(errs) > 0:
		errs = append(errs, fmt.Errorf("%s was not written: not all could be planned", o.Out))
	case o.Out != "":
		if err := p.save(o.Out, plan, chosen, made); err != nil {
			return nil, err
		}
	}
	plan.connect(chosen)
	plan.mask(c.Masker.Hide)
	return plan, errors.Join(errs...)
}

// connect lists for each stage the earlier stages whose changed outputs it was planned with.
func (p *Plan) connect(chosen []*config.Stage) {
	for i, s := range chosen {
		for _, edge := range s.Edges() {
			at := slices.Index(chosen, edge.From)
			if at < 0 || p.Stages[at].State != review.Changes || p.Stages[at].outputsRead ||
				len(edge.Values) == 0 && !edge.Connects {
				continue
			}
			if one := &p.Stages[i]; one.State == review.UpToDate || one.State == review.Unchanged ||
				one.State == review.Changes {
				one.OnEarlier = append(one.OnEarlier, edge.From.Name)
			}
		}
	}
}

// mask hides secrets in every text.
func (p *Plan) mask(hide func(string) string) {
	all := func(texts []string) {
		for i := range texts {
			texts[i] = hide(texts[i])
		}
	}
	for i := range p.Stages {
		s := &p.Stages[i]
		s.Reason = hide(s.Reason)
		all(s.Differs)
		all(s.Refused)
		all(s.Notes)
		for j := range s.Changes {
			s.Changes[j].Address = hide(s.Changes[j].Address)
		}
	}
}
