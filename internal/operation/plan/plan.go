// Package plan reports the changes of a create, stage by stage, and saves them on request. It applies,
// imports and records nothing.
package plan

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/operation/rollout"
	"github.com/ephemeral-castle/castle/internal/platform"
	"github.com/ephemeral-castle/castle/internal/run"
	"github.com/ephemeral-castle/castle/internal/run/applied"
	"github.com/ephemeral-castle/castle/internal/run/review"
	"github.com/ephemeral-castle/castle/internal/run/unrecorded"
	"github.com/ephemeral-castle/castle/internal/secret"
	"github.com/ephemeral-castle/castle/internal/state"
	"github.com/ephemeral-castle/castle/internal/state/recorded"
)

// Options narrow a plan and name the file to save it in.
type Options struct {
	Selection cluster.Selection
	Out       string // the file that it is saved in; none if empty
	// Quick leaves out the refresh of stages whose inputs, gates and revisions are those of the last apply.
	Quick bool
}

// Plan reports the changes that a create would make now. Its JSON is stable for scripts: fields may be
// added, none changes its meaning.
type Plan struct {
	Cluster  string             `json:"cluster"`
	Platform string             `json:"platform"`
	Code     []CodeChange       `json:"code_changed"` // since it was applied
	Stages   []*Stage           `json:"stages"`       // by layer, then as cluster.hcl lists them
	Total    Total              `json:"total"`
	Unlisted []cluster.Unlisted `json:"unlisted"` // that a create leaves as they are
	Saved    *SavedPlan         `json:"saved,omitempty"`
	// Unknown are machines of the cluster that its state does not know; nil if castle has found none.
	Unknown *unrecorded.Found `json:"unknown,omitempty"`
	// Machines lists what is not as castle has left the machines of the state.
	Machines []string `json:"machines,omitempty"`
	// Costs are those of the configured machines; nil where they are not known.
	Costs *platform.Costs `json:"costs,omitempty"`
	// Rollout is what only a rollout changes; nil: no machine that runs changes.
	Rollout *rollout.List `json:"rollout,omitempty"`
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
	// DriftLeft is what differs from the last apply, although a create would change nothing about it.
	DriftLeft []review.Drift `json:"drift_left,omitempty"`

	config      *config.Stage
	recorded    *state.State
	detached    []gate.Detached // disks of its machines
	unfinished  []string        // resources that a create would taint, and so replace
	unchanged   bool            // its inputs since its last good apply
	closed      bool            // a gate is
	drift       applied.Drift   // by the revisions of its objects, with Options.Quick
	err         error
	imports     bool   // an import comes first and makes any earlier plan outdated
	saved       []byte // Terraform's own plan
	outputsRead bool   // its planned outputs are inputs of the others' plans
}

// Total sums up the changes of all stages.
type Total struct {
	Counts map[string]int `json:"counts"` // of the changes, by action
	Stages int            `json:"stages"`
	// Changing is how many stages a create would change.
	Changing int `json:"changing"`
	// NotPlanned are the stages whose inputs are known after apply, or at which castle could not look.
	NotPlanned []string `json:"not_planned"`
	// Changes is false only if castle has planned all stages and a create would change none of them.
	Changes bool `json:"changes"`
	// Refreshed: castle has looked at the objects of all planned stages. If not, it compared only revisions
	// where nothing else had changed.
	Refreshed bool `json:"refreshed"`
}

func (p *Plan) sum(refreshed bool) {
	p.Total = Total{Counts: map[string]int{}, Stages: len(p.Stages), NotPlanned: []string{},
		Refreshed: refreshed}
	for _, s := range p.Stages {
		for action, n := range s.Counts {
			p.Total.Counts[action] += n
		}
		switch {
		case review.HasWork(s.State):
			p.Total.Changing++
		case !review.IsPlanned(s.State):
			p.Total.NotPlanned = append(p.Total.NotPlanned, s.Name)
		}
	}
	p.Total.Changes = p.Total.Changing+len(p.Total.NotPlanned) > 0
}

// CodeChange reports that a stage's module differs from the applied one: by an upgrade, or by somebody.
type CodeChange struct {
	Stage  string   `json:"stage"`
	Layer  string   `json:"layer"`
	Source string   `json:"source"` // networking/metallb
	Castle string   `json:"castle"` // the version that applied it
	Files  []string `json:"files"`  // that differ; empty if the applied module is not recorded
}

// Extension ends the names of the files that plans are saved in.
const Extension = review.Extension

// SavedPlan describes the file of a saved plan.
type SavedPlan struct {
	Path   string `json:"path"`
	SHA256 string `json:"sha256"`
	Apply  string `json:"apply"` // the command that applies it
	// Encrypted: only an identity of the states' recipients reads it.
	Encrypted bool `json:"encrypted,omitempty"`
	// Unplanned are the stages without a plan: castle plans those during the create.
	Unplanned []string `json:"unplanned"`
	// Imports are the stages that castle plans again after an import.
	Imports []string `json:"imports"`
}

// Run plans a create. It applies, imports and records nothing. A stage whose inputs are not known yet
// waits, unless they come from a stage that only reads. The error joins all stages that could not be
// planned; the Plan holds those too. The Plan is nil if castle could read nothing or could not save it.
func Run(ctx context.Context, c *cluster.Cluster, o Options) (_ *Plan, err error) {
	chosen, err := o.Selection.Stages(c.Config.Stages)
	if err != nil {
		return nil, err
	}
	ctx, r, err := run.BeginChecked(ctx, c, "plan", applied.CleanUp)
	if err != nil {
		return nil, err
	}
	defer func() { err = r.End(err) }()
	p := &planning{run: r, damaged: map[*config.Stage]error{}, keeps: o.Out != "", quick: o.Quick}
	r.Outputs.Compute(chosen) // the states complete them
	if err := p.readStates(); err != nil {
		return nil, err
	}
	plan := &Plan{
		Cluster: c.Config.Name, Platform: c.Config.Platform, Code: []CodeChange{},
		Unlisted: []cluster.Unlisted{},
	}
	if o.Selection.All() {
		if plan.Unlisted, err = c.UnlistedStages(); err != nil {
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
	plan.Stages = p.stages(ctx, chosen)
	found, err := unrecorded.Look(ctx, r, chosen) // it may use an API token that the plan has read
	if ctx.Err() != nil {
		return nil, context.Cause(ctx) // an interrupted plan is incomplete
	}
	if err != nil {
		return nil, err
	}
	if plan.Costs = found.Costs; !found.None() {
		plan.Unknown = found
	}
	if plan.Rollout, err = p.machines.List(ctx); err != nil {
		return nil, err
	}
	for _, m := range found.Facts {
		plan.Machines = append(plan.Machines, m.Lines(c.Command("create"))...)
	}
	var errs []error
	for _, s := range plan.Stages {
		if s.err != nil {
			errs = append(errs, fmt.Errorf("stage %s: %w", s.Name, s.err))
		}
	}
	switch {
	case o.Out != "" && len(errs) > 0:
		errs = append(errs, fmt.Errorf("%s was not written: not all could be planned", o.Out))
	case o.Out != "":
		if err := p.save(o.Out, plan); err != nil {
			return nil, err
		}
	}
	plan.connect()
	plan.sum(!o.Quick)
	plan.mask(c.Masker.Hide)
	return plan, errors.Join(errs...)
}

// Looks returns what the plan has found, by stage.
func (p *Plan) Looks() map[string]review.Look {
	looks := map[string]review.Look{}
	for _, s := range p.Stages {
		looks[s.Name] = review.Look{State: s.State, Reason: s.Reason, Refused: s.Refused, Changes: s.Changes}
	}
	return looks
}

// Refused reports whether a create would refuse a stage.
func (p *Plan) Refused() bool {
	return slices.ContainsFunc(p.Stages, func(s *Stage) bool { return len(s.Refused) > 0 })
}

// connect lists for each stage the earlier stages whose changed outputs it was planned with.
func (p *Plan) connect() {
	for _, one := range p.Stages {
		for _, edge := range one.config.Edges() {
			changes := func(s *Stage) bool {
				return s.config == edge.From && review.HasWork(s.State) && !s.outputsRead
			}
			isRead := len(edge.Values) > 0 || edge.Connects
			if isRead && review.IsPlanned(one.State) && slices.ContainsFunc(p.Stages, changes) {
				one.OnEarlier = append(one.OnEarlier, edge.From.Name)
			}
		}
	}
}

// mask hides secrets in every text.
func (p *Plan) mask(hide func(string) string) {
	if p.Unknown != nil {
		p.Unknown.Mask(hide)
	}
	secret.HideAll(hide, p.Machines)
	if p.Rollout != nil {
		p.Rollout.Mask(hide)
	}
	for _, s := range p.Stages {
		s.Reason = hide(s.Reason)
		secret.HideAll(hide, s.Differs, s.Refused, s.Notes)
		for i := range s.Changes {
			s.Changes[i].Mask(hide)
		}
		for i := range s.DriftLeft {
			s.DriftLeft[i].Mask(hide)
		}
	}
}

// codeChange compares a stage's module with the applied one; nil if they are equal or none was recorded.
func codeChange(c *cluster.Cluster, s *config.Stage) (*CodeChange, error) {
	dir := c.Dir.Stage(s.Name)
	rec, err := dir.Record()
	if errors.Is(err, fs.ErrNotExist) || err == nil && rec.Module == "" {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	now, err := state.Digest(s.Module)
	if err != nil || now == rec.Module {
		return nil, err
	}
	change := &CodeChange{
		Stage: s.Name, Layer: s.Layer, Source: s.Source, Castle: rec.Castle, Files: []string{},
	}
	last, _, err := recorded.Module(dir, c.Command("create"))
	if errors.Is(err, fs.ErrNotExist) || errors.As(err, new(*state.DamagedError)) {
		return change, nil
	}
	if err != nil {
		return nil, err
	}
	var was, is state.Fingerprint
	if err := errors.Join(was.AddFS("", last), is.AddFS("", s.Module)); err != nil {
		return nil, err
	}
	differing := slices.DeleteFunc(is.Changed(&was), recorded.IsAdded)
	change.Files = append(change.Files, differing...)
	return change, nil
}

// save writes the plan to a file that a create applies exactly.
func (p *planning) save(path string, plan *Plan) error {
	c := p.run.Cluster
	file := &review.SavedPlan{
		Path: path, Cluster: c.Name(), Castle: c.Options.Version, StateDir: c.Dir.Path(), Run: p.run.ID,
		Made: time.Now().UTC(),
	}
	var err error
	if file.Facts, err = review.ConfigurationFacts(p.run); err != nil {
		return err
	}
	plan.Saved = &SavedPlan{
		Path: path, Apply: c.Command("create") + " --plan " + path,
		Unplanned: []string{}, Imports: []string{},
	}
	for _, s := range plan.Stages {
		one := review.SavedStage{Name: s.Name, State: s.State, Saved: s.saved}
		if one.Facts, err = review.Facts(p.run, s.config, review.IsPlanned(s.State)); err != nil {
			return err
		}
		for _, c := range s.Changes {
			one.Changes = append(one.Changes,
				review.Change{Address: c.Address, Action: c.Action, Reason: c.Reason, Lost: c.Lost})
		}
		switch {
		case !review.IsPlanned(s.State):
			plan.Saved.Unplanned = append(plan.Saved.Unplanned, s.Name)
		case review.HasWork(s.State) && s.imports:
			plan.Saved.Imports = append(plan.Saved.Imports, s.Name)
		}
		file.Stages = append(file.Stages, one)
	}
	err = file.Write(c.Store.FileEncryption())
	plan.Saved.Encrypted = len(c.Store.FileEncryption().Recipients) > 0
	plan.Saved.SHA256 = file.Digest
	return err
}
