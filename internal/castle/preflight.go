package castle

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/event"
	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/process"
	"github.com/ephemeral-castle/castle/internal/state"
)

// earlyPreflight asks a preflight before any stage has changed anything. A
// failure to ask may mean that a volatile secret was rotated since the last run,
// so that is read again once before it counts.
func (r *creation) earlyPreflight(ctx context.Context, s *config.Stage, p *config.Preflight) error {
	var findings gate.Inspection
	err := r.step(s.Name, s.Layer, "preflight", func() (err error) {
		if findings, err = r.inspect(ctx, s, p); err == nil || ctx.Err() != nil {
			return err
		}
		for _, need := range p.Needs {
			if need.Volatile {
				if e := r.renew(ctx, need); e != nil {
					return errors.Join(err, e)
				}
				findings, err = r.inspect(ctx, s, p)
			}
		}
		return err
	})
	if err != nil {
		return unanswered(p.Name(), err)
	}
	if err := r.refuse(s, p, findings, r.adopts); err != nil {
		return err
	}
	for _, own := range findings.Ours {
		if r.adopts {
			r.notice(fmt.Sprintf("%s is adopted as %s", own.Import.What, own.Import.Address))
			continue
		}
		r.notice(fmt.Sprintf("%s was made by a run that was killed; it is taken over", own.Import.What))
	}
	return nil
}

// claims says which of the things that only the state is missing to be the stage's
// own may be taken: those that a run was making when it was cut short, or all if
// the user says so. Anything else of the same name and tags may be another castle's.
func (r *run) claims(s *config.Stage, adopts bool) (func(gate.Own) bool, error) {
	if adopts {
		return func(gate.Own) bool { return true }, nil
	}
	intent, err := r.dir.Stage(s.Name).Intent().Read()
	return func(own gate.Own) bool { return intent.Covers(own.Import.Address, own.Import.ID) }, err
}

// refuse is nil if nothing stands in the way of a stage.
func (r *run) refuse(s *config.Stage, p *config.Preflight, findings gate.Inspection, adopts bool) error {
	inTheWay := slices.Concat(findings.Unusable, findings.Foreign)
	claimed, err := r.claims(s, adopts)
	if err != nil {
		return err
	}
	for _, own := range findings.Ours {
		if !claimed(own) {
			own.AsForeign.Fixes = append([]string{"take it over as it is: " + r.command("create") + " --adopt"}, own.AsForeign.Fixes...)
			inTheWay = append(inTheWay, own.AsForeign)
		}
	}
	if len(inTheWay) == 0 {
		return nil
	}
	for i, f := range inTheWay {
		if f.Nuke != "" {
			inTheWay[i].Fixes = append(slices.Clone(f.Fixes), "delete it: "+r.nukeCommand(s, p, f.Nuke))
		}
	}
	e := &PreflightError{Preflight: p.Name(), Foreign: inTheWay, Terraform: r.terraformCommand(s.Name), Forget: r.forgetCommand(s.Name)}
	var missing []string
	for _, need := range s.Needs {
		st, err := r.readState(r.dir.Stage(need.Name))
		if err != nil {
			return err
		}
		if !st.Exists {
			missing = append(missing, need.Name)
		}
	}
	if len(missing) > 0 {
		e.First = fmt.Sprintf("%s --only %s", r.command("create"), strings.Join(missing, ","))
	}
	return e
}

// terraformCommand is the command line that runs Terraform on a stage, up to its "--".
func (r *Castle) terraformCommand(stage string) string {
	return r.command("terraform") + " " + stage + " --"
}

// forgetCommand is the command line that forgets a resource of a stage, up to its address.
func (r *Castle) forgetCommand(stage string) string { return r.command("state forget") + " " + stage }

// command is a castle command for the same cluster and state, as the user would type it.
func (r *Castle) command(name string) string { return r.bare(name) + " " + r.options.Cluster }

// bare is a castle command for the same state.
func (r *Castle) bare(name string) string {
	castle := "castle"
	if r.options.StateDir != "" {
		castle += " --state-dir " + process.Quote(r.options.StateDir)
	}
	return castle + " " + name
}

// nukeCommand deletes machines by their ids. Where nothing was recorded of the
// cluster yet, nuke has to be told where they are.
func (r *run) nukeCommand(s *config.Stage, p *config.Preflight, ids string) string {
	command := r.bare("nuke") + " --vmid-range " + ids
	if rec, err := r.dir.Stage(s.Name).Record(); err == nil && len(rec.Preflights) > 0 {
		return command + " --cluster " + r.options.Cluster
	}
	values, diags := p.Values(s, r.said.scope(s))
	if diags.HasErrors() {
		return command
	}
	return command + " --endpoint " + gate.Values(values).String("endpoint") + ", with the API token in PROXMOX_VE_API_TOKEN"
}

// inspect asks one preflight of a stage.
func (r *run) inspect(ctx context.Context, s *config.Stage, p *config.Preflight) (gate.Inspection, error) {
	scope := r.said.scope(s)
	if inputs, diags := s.Inputs(scope); !diags.HasErrors() {
		r.hide(s, inputs)
	}
	values, diags := p.Values(s, scope)
	if diags.HasErrors() {
		return gate.Inspection{}, diags
	}
	preflight, err := p.Type.New(p.Name(), gate.Target{Environ: r.options.Environ}, values)
	if err != nil {
		return gate.Inspection{}, err
	}
	st, err := r.readState(r.dir.Stage(s.Name))
	if err != nil {
		return gate.Inspection{}, err
	}
	all, err := expected(r.dir.Stage(s.Name), st)
	if err != nil {
		return gate.Inspection{}, err
	}
	return preflight.Inspect(ctx, all, r.notice)
}

// expected lists what a stage's preflights may find again: what its state knows,
// with the marks; what a run was making when it was cut short; and what the state
// knew when a destroy began that has not proved it all.
func expected(dir *state.Stage, st *state.State) ([]gate.Known, error) {
	marks, err := marksOf(dir)
	if err != nil {
		return nil, err
	}
	intent, err := dir.Intent().Read()
	if err != nil {
		return nil, err
	}
	held, err := heldBy(dir)
	if err != nil {
		return nil, err
	}
	for _, c := range intent.InFlight(st.Has) {
		held = append(held, c.Address)
	}
	all := known(st, marks...)
	for _, address := range held {
		if !st.Has(address) {
			all = append(all, gate.Known{Address: address})
		}
	}
	return all, nil
}

// known lists the managed resources of a state, with what castle has noted of
// the things that they stand for.
func known(st *state.State, marks ...gate.MachineID) []gate.Known {
	var all []gate.Known
	for _, res := range st.Resources {
		if res.Mode == managed {
			all = append(all, gate.Known{Address: res.Address, Type: res.Type, Attributes: res.Attributes, MachineID: markOf(marks, res.Address)})
		}
	}
	return all
}

// managed is the mode of a resource that Terraform owns; the other is "data".
const managed = "managed"

// importOurs brings what a killed run made into the state, so that it is not
// made twice, and refuses to go on if anything foreign is in the way.
func (r *creation) importOurs(ctx context.Context, s *config.Stage, work *workshop) error {
	for _, p := range s.Preflights {
		findings, err := r.inspect(ctx, s, p)
		if err != nil {
			return unanswered(p.Name(), err)
		}
		if err := r.refuse(s, p, findings, r.adopts); err != nil {
			return err
		}
		if err := r.letGo(ctx, place{s.Name, s.Layer}, work, findings.Lost); err != nil {
			return err
		}
		for _, own := range findings.Ours {
			if err := r.importOne(ctx, s.Name, s.Layer, work, own.Import); err != nil {
				return err
			}
		}
	}
	return nil
}

// letGo takes out of the state what is not the stage's any more.
func (r *run) letGo(ctx context.Context, at place, work *workshop, lost []string) error {
	st, err := r.readState(r.dir.Stage(at.name))
	if err != nil {
		return err
	}
	lost = slices.DeleteFunc(slices.Clone(lost), func(address string) bool { return !st.Has(address) })
	if len(lost) == 0 {
		return nil
	}
	r.notice(fmt.Sprintf("%s: not what the stage has left it any more: %s", at.name, strings.Join(lost, ", ")))
	return r.step(at.name, at.layer, "state rm", func() error { return work.root.Untrack(ctx, lost) })
}

func (r *run) importOne(ctx context.Context, stage, layer string, work *workshop, one gate.Import) error {
	err := r.step(stage, layer, "import", func() error { return work.root.Import(ctx, one.Address, one.ID) })
	if err != nil {
		return fmt.Errorf("import %s as %s: %w", one.What, one.Address, err)
	}
	r.emit(event.Event{Kind: event.Resource, Layer: layer, Stage: stage, Address: one.Address, Action: "import", Text: one.What})
	return nil
}

// recheck asks the preflights again, right before the apply. The plan does not know
// of what has turned out to be the stage's own since: it has to be made anew.
func (r *creation) recheck(ctx context.Context, s *config.Stage) error {
	for _, p := range s.Preflights {
		findings, err := r.inspect(ctx, s, p)
		if err != nil {
			return unanswered(p.Name(), err)
		}
		if err := r.refuse(s, p, findings, r.adopts); err != nil {
			return err
		}
		if len(findings.Ours) > 0 {
			return &outdatedError{findings.Ours[0].Import.What}
		}
	}
	return nil
}

// outdatedError says that a plan was overtaken by what it was made for.
type outdatedError struct{ what string }

func (e *outdatedError) Error() string { return e.what + " appeared while the stage was planned" }

// Transient says that the next try takes it in.
func (e *outdatedError) Transient() bool { return true }

func has(st *state.State, address string) bool {
	for _, res := range st.Resources {
		if res.Address == address {
			return true
		}
	}
	return false
}
