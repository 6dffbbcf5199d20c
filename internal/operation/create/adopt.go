package create

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/event"
	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/run"
	"github.com/ephemeral-castle/castle/internal/state"
	"github.com/ephemeral-castle/castle/internal/talos"
	"github.com/ephemeral-castle/castle/internal/terraform"
)

// answerTime bounds how long an adoption waits for an answer: long enough for a machine to start. Terraform
// would be refused for longer.
const answerTime = 5 * time.Minute

// adoption imports existing objects that a stage's state lacks, such as a secret of an earlier cluster of
// this name.
type adoption struct {
	run       *run.Run
	stage     *config.Stage
	dir       *state.Stage
	work      *run.Workspace
	addresses []string // adopted by now
}

// adopt runs after the preflights' imports: the imported machines may tell which objects exist.
func (a *adoption) adopt(ctx context.Context) error {
	st, err := a.run.ReadState(a.dir)
	if err != nil {
		return err
	}
	for _, one := range a.stage.Adopts {
		if cluster.HasResource(st, one.Address) {
			continue
		}
		var found bool
		err := a.run.Step(a.stage.Name, a.stage.Layer, "adopt", func() (err error) {
			found, err = a.adoptOne(ctx, one, st)
			return err
		})
		if err != nil {
			return fmt.Errorf("adopt %s: %w", one.Address, err)
		}
		if found {
			a.addresses = append(a.addresses, one.Address)
			a.run.Emit(event.Event{
				Kind: event.Resource, Layer: a.stage.Layer, Stage: a.stage.Name,
				Address: one.Address, Action: "import", Text: "it exists already",
			})
		}
	}
	return nil
}

func (a *adoption) adoptOne(ctx context.Context, one *config.Adopt, st *state.State) (bool, error) {
	id, diags := one.ID(a.stage, a.run.Outputs.Scope(a.stage))
	if diags.HasErrors() {
		return false, diags
	}
	if id == "" {
		return false, nil
	}
	if one.Exists != nil {
		if there, err := a.exists(ctx, one, st); err != nil || !there {
			return false, err
		}
	}
	err := a.work.Root.Import(ctx, one.Address, id)
	if errors.Is(err, terraform.ErrNoSuchObject) {
		return false, nil
	}
	return err == nil, err
}

// exists checks whether an adoption has anything to import, until there is an
// answer, an error that lasts, or no time left.
func (a *adoption) exists(ctx context.Context, one *config.Adopt, st *state.State) (there bool, err error) {
	question, err := run.AdoptionLookup(a.run, a.stage, one)
	if err != nil {
		return false, err
	}
	g := gate.Gate{Name: question.Name, Check: func(ctx context.Context) (err error) {
		there, err = question.Lookup(ctx, cluster.Known(st))
		return err
	}}
	policy := one.Exists.Policy
	if policy.Timeout == 0 {
		policy.Timeout = answerTime
	}
	err = gate.Wait(ctx, g, policy, gate.Listener{Answer: func(unknown error) {
		if unknown != nil {
			a.run.Notice(
				fmt.Sprintf("%s: adopt %s waits for an answer: %v", a.stage.Name, one.Address, unknown),
			)
		}
	}})
	var late *gate.TimeoutError
	switch {
	case err == nil || ctx.Err() != nil:
		return there, err
	case errors.As(err, &late):
		return false, fmt.Errorf("exists %s: no answer within %s: %w", question.Name, late.Timeout, late.Last)
	}
	err = fmt.Errorf("exists %s: %w", question.Name, errors.Unwrap(err))
	if errors.Is(err, talos.ErrOtherSecrets) {
		err = fmt.Errorf("%w; if a copy of the state that holds them is left, bring it back: %s; "+
			"if none is, build the machines anew: %s",
			err, a.run.Cluster.Command("state show"), a.run.Cluster.Command("recreate"))
	}
	return false, err
}

// keep refuses a plan that would delete or replace a newly adopted object. It untracks the object again, so
// that the next run refuses the plan too.
func (a *adoption) keep(ctx context.Context, plan *terraform.Plan) error {
	var lost []string
	for _, c := range plan.Changes {
		if slices.Contains(a.addresses, c.Address) && (c.Action == "replace" || c.Action == "delete") {
			lost = append(lost, c.Address)
		}
	}
	if len(lost) == 0 {
		return nil
	}
	err := fmt.Errorf(
		"adopt %s: what exists differs so much from what the stage describes that Terraform would "+
			"delete it and make it anew; nothing was changed. Correct the id in its adopt block, or the "+
			"stage; "+
			"or delete the object if nobody needs it",
		strings.Join(lost, ", "),
	)
	return errors.Join(err, a.work.Root.Untrack(ctx, lost))
}

// checkNothingToAdopt makes sure that nothing is to be adopted that the saved plan
// would make anew, and that nothing was imported before it.
func (a *attempt) checkNothingToAdopt(ctx context.Context) error {
	if !a.approved.isExact() {
		return nil
	}
	if a.before.SHA256 != a.approved.before.SHA256 {
		return a.creation.saved.stale("something of it was imported first")
	}
	for _, one := range a.stage.Adopts {
		if cluster.HasResource(a.before, one.Address) || one.Exists == nil {
			continue
		}
		if id, diags := one.ID(a.stage, a.run.Outputs.Scope(a.stage)); diags.HasErrors() || id == "" {
			continue
		}
		there, err := a.adoption.exists(ctx, one, a.before)
		if err != nil {
			return fmt.Errorf("adopt %s: %w", one.Address, err)
		}
		if there {
			return a.creation.saved.stale(one.Address + ": it exists by now, and is to be adopted")
		}
	}
	return nil
}
