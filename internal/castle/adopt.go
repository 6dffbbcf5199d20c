package castle

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/event"
	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/state"
	"github.com/ephemeral-castle/castle/internal/talos"
	"github.com/ephemeral-castle/castle/internal/terraform"
)

// answerTime is how long an adoption waits for an answer whether its object
// exists: as long as a machine may take to start, and less than what Terraform
// would be refused for.
const answerTime = 5 * time.Minute

// adopt imports what exists outside and the state lacks, such as a secret that
// an earlier cluster of this name has left, and returns the addresses. It comes
// after the preflights' imports: what exists may be known by the machines that
// they found.
func (r *run) adopt(ctx context.Context, s *config.Stage, work *workshop) (adopted []string, err error) {
	st, err := r.readState(r.dir.Stage(s.Name))
	if err != nil {
		return nil, err
	}
	for _, a := range s.Adopts {
		if has(st, a.Address) {
			continue
		}
		var found bool
		err := r.step(s.Name, s.Layer, "adopt", func() (err error) {
			found, err = r.adoptOne(ctx, s, a, work, st)
			return err
		})
		if err != nil {
			return adopted, fmt.Errorf("adopt %s: %w", a.Address, err)
		}
		if found {
			adopted = append(adopted, a.Address)
			r.emit(event.Event{Kind: event.Resource, Layer: s.Layer, Stage: s.Name, Address: a.Address, Action: "import", Text: "it exists already"})
		}
	}
	return adopted, nil
}

func (r *run) adoptOne(ctx context.Context, s *config.Stage, a *config.Adopt, work *workshop, st *state.State) (bool, error) {
	id, diags := a.ID(s, r.said.scope(s))
	if diags.HasErrors() {
		return false, diags
	}
	if id == "" {
		return false, nil
	}
	if a.Exists != nil {
		if there, err := r.exists(ctx, s, a, st); err != nil || !there {
			return false, err
		}
	}
	err := work.root.Import(ctx, a.Address, id)
	if errors.Is(err, terraform.ErrNoSuchObject) {
		return false, nil
	}
	return err == nil, err
}

// question is what is asked to know whether an adoption has anything to import.
func (r *run) question(s *config.Stage, a *config.Adopt) (gate.Exists, error) {
	values, diags := a.Exists.Values(s, r.said.scope(s))
	if diags.HasErrors() {
		return gate.Exists{}, diags
	}
	target := r.said.target()
	target.Environ = r.options.Environ
	return a.Exists.Type.New(a.Exists.Name(), target, values)
}

// exists asks whether an adoption has anything to import, until there is an
// answer, an error that lasts, or no time left.
func (r *run) exists(ctx context.Context, s *config.Stage, a *config.Adopt, st *state.State) (there bool, err error) {
	question, err := r.question(s, a)
	if err != nil {
		return false, err
	}
	asked := gate.Gate{Name: question.Name, Check: func(ctx context.Context) (err error) {
		there, err = question.Lookup(ctx, known(st))
		return err
	}}
	policy := a.Exists.Policy
	if policy.Timeout == 0 {
		policy.Timeout = answerTime
	}
	err = gate.Wait(ctx, asked, policy, gate.Listener{Answer: func(unknown error) {
		if unknown != nil {
			r.notice(fmt.Sprintf("%s: adopt %s waits for an answer: %v", s.Name, a.Address, unknown))
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
		err = fmt.Errorf("%w; if a copy of the state that holds them is left, bring it back: %s; if none is, build the machines anew: %s",
			err, r.command("state show"), r.command("recreate"))
	}
	return false, err
}

// keepAdopted refuses a plan that would delete what was just adopted, be it to
// make it anew: whoever adopts wants to keep. What was imported is forgotten
// again, so that the next run refuses it too.
func (r *run) keepAdopted(ctx context.Context, s *config.Stage, work *workshop, plan *terraform.Plan, adopted []string) error {
	var lost []string
	for _, c := range plan.Changes {
		if slices.Contains(adopted, c.Address) && (c.Action == "replace" || c.Action == "delete") {
			lost = append(lost, c.Address)
		}
	}
	if len(lost) == 0 {
		return nil
	}
	err := fmt.Errorf("adopt %s: what exists differs so much from what the stage describes that Terraform would delete it and make it anew; nothing was changed. "+
		"Correct the id in its adopt block, or the stage; or delete the object if nobody needs it", strings.Join(lost, ", "))
	return errors.Join(err, work.root.Untrack(ctx, lost))
}
