package castle

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/ephemeral-castle/castle/internal/config"
)

// What a stage is planned to become.
const (
	PlanCurrent     = "current"     // nothing to do: Terraform would not even be started
	PlanUnchanged   = "unchanged"   // Terraform was asked and would change nothing
	PlanChanges     = "changes"     // Changes says what
	PlanWaits       = "waits"       // its inputs do not exist yet: Missing names them
	PlanUnreachable = "unreachable" // what it is to change is in a cluster that does not answer
	PlanFailed      = "failed"      // it could not be planned: Reason says why
)

// PlanOptions narrow a plan, and say whether it is kept.
type PlanOptions struct {
	Selection Selection
	Out       string // the file that it is saved in; none if empty
}

// Plan is what a create would do now. As JSON it is a promise to scripts: fields
// may be added, none changes its meaning.
type Plan struct {
	Cluster  string       `json:"cluster"`
	Platform string       `json:"platform"`
	Code     []CodeChange `json:"code_changed"` // since it was applied
	Stages   []StagePlan  `json:"stages"`       // by layer, and inside a layer as cluster.hcl lists them
	Unlisted []Unlisted   `json:"unlisted"`     // that a create leaves as they are
	Saved    *SavedPlan   `json:"saved,omitempty"`
}

// Unlisted is a stage that was created and that the configuration does not list
// any more, or lists as disabled.
type Unlisted struct {
	Stage   string `json:"stage"`
	Layer   string `json:"layer"`
	Destroy string `json:"destroy"` // the command that would raze it
}

// StagePlan is one stage's part of a Plan.
type StagePlan struct {
	Name      string          `json:"name"`
	Layer     string          `json:"layer"`
	State     string          `json:"state"`
	Reason    string          `json:"reason,omitempty"`
	Missing   []string        `json:"missing,omitempty"`    // outputs: "platform.kubeconfig"
	Differs   []string        `json:"differs,omitempty"`    // what is not as it was at the last good apply
	Refused   []string        `json:"refused,omitempty"`    // what its preflights refuse: create would stop here
	Notes     []string        `json:"notes,omitempty"`      // what else create would do or meet
	Counts    map[string]int  `json:"counts,omitempty"`     // of Changes, by action
	Changes   []PlannedChange `json:"changes,omitempty"`    // by address
	OnEarlier []string        `json:"on_earlier,omitempty"` // stages that change first and may say something else then

	heard bool // what it will say was heard, and is what the others were planned with
}

// PlannedChange is what would become of one resource.
type PlannedChange struct {
	Address    string   `json:"address"`
	Action     string   `json:"action"`               // create, update, replace, delete, forget, move, read or adopt
	Reason     string   `json:"reason,omitempty"`     // in Terraform's words: tainted, cannot_update …
	Attributes []string `json:"attributes,omitempty"` // that change, or for which it is replaced; never their values
}

// String says what is left over, and the way out.
func (u Unlisted) String() string {
	return fmt.Sprintf("%s/%s is recorded and no longer in the configuration; a create leaves it: %s", u.Layer, u.Stage, u.Destroy)
}

// String is the change as Terraform's users know it.
func (c PlannedChange) String() string {
	signs := map[string]string{
		"create": "+", "adopt": ">", "import": ">", "update": "~", "replace": "-/+", "delete": "-", "move": "=", "forget": ".",
	}
	var why []string
	if c.Reason != "" {
		reason := strings.TrimPrefix(c.Reason, "delete_because_") // that it is deleted is said already
		why = append(why, strings.ReplaceAll(reason, "_", " "))
	}
	if len(c.Attributes) > 0 {
		why = append(why, strings.Join(c.Attributes, ", "))
	}
	line := fmt.Sprintf("%3s %s", cmp.Or(signs[c.Action], "?"), c.Address)
	if len(why) > 0 {
		line += " (" + strings.Join(why, ": ") + ")"
	}
	return line
}

// Plan says what a create would do. It applies, imports and records nothing: no
// state changes, and neither does what the status of a stage depends on. What
// does not exist yet has no value here, so that a stage whose inputs come from one
// that was never applied is not planned, unless that one only reads: what it would
// say is known. The error joins what could not be
// planned; the Plan holds all of it, too, and is nil only if nothing could be asked,
// or if it could not be saved.
func (c *Castle) Plan(ctx context.Context, o PlanOptions) (_ *Plan, err error) {
	chosen, err := o.Selection.stages(c.cluster.Stages)
	if err != nil {
		return nil, err
	}
	doubts, err := c.judged()
	if err != nil {
		return nil, err
	}
	r, err := c.begin(ctx, "plan")
	if err != nil {
		return nil, err
	}
	defer func() { err = r.end(err) }()
	for _, d := range doubts {
		r.notice(d)
	}
	p := &planning{run: r, unsound: map[*config.Stage]error{}, keeps: o.Out != ""}
	if err := p.recallSound(); err != nil {
		return nil, err
	}
	plan := &Plan{Cluster: c.cluster.Name, Platform: c.cluster.Platform, Code: []CodeChange{}, Unlisted: []Unlisted{}}
	if o.Selection.All() {
		if plan.Unlisted, err = r.unlisted(); err != nil {
			return nil, err
		}
	}
	for _, s := range chosen {
		code, err := c.codeChange(s)
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
		plan.Stages = append(plan.Stages, one.StagePlan)
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx) // a question that was stopped is no answer
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
	plan.mask(c.masker.Hide)
	return plan, errors.Join(errs...)
}

// unlisted are the recorded stages that no create touches.
func (r *Castle) unlisted() ([]Unlisted, error) {
	places, err := r.remembered("")
	if err != nil {
		return nil, err
	}
	all := []Unlisted{}
	for _, p := range places {
		if len(matches(placesOf(r.cluster.Stages), p.name)) > 0 {
			continue
		}
		command := r.command("destroy") + " --only " + p.name
		if rec, err := r.dir.Stage(p.name).Record(); err == nil && rec.Persistent {
			command += " --all"
		}
		all = append(all, Unlisted{Stage: p.name, Layer: p.layer, Destroy: command})
	}
	return all, nil
}

// connect notes which stages were planned with what a stage says that is itself
// to be changed before them.
func (p *Plan) connect(chosen []*config.Stage) {
	for i, s := range chosen {
		for _, edge := range s.Edges() {
			at := slices.Index(chosen, edge.From)
			if at < 0 || p.Stages[at].State != PlanChanges || p.Stages[at].heard || len(edge.Values) == 0 && !edge.Connects {
				continue
			}
			if one := &p.Stages[i]; one.State == PlanCurrent || one.State == PlanUnchanged || one.State == PlanChanges {
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
