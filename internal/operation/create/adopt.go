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

// answerTime is how long an adoption waits for an answer whether its object
// exists: as long as a machine may take to start, and less than what Terraform
// would be refused for.
const answerTime = 5 * time.Minute

// adopt imports what exists outside and the state lacks, such as a secret that
// an earlier cluster of this name has left, and returns the addresses. It comes
// after the preflights' imports: what exists may be known by the machines that
// they found.
func adopt(ctx context.Context, r *run.Run, s *config.Stage, work *run.Workspace) (adopted []string, err error) {
	st, err := r.ReadState(r.Cluster.Dir.Stage(s.Name))
	if err != nil {
		return nil, err
	}
	for _, a := range s.Adopts {
		if cluster.HasResource(st, a.Address) {
			continue
		}
		var found bool
		err := r.Step(s.Name, s.Layer, "adopt", func() (err error) {
			found, err = adoptOne(ctx, r, s, a, work, st)
			return err
		})
		if err != nil {
			return adopted, fmt.Errorf("adopt %s: %w", a.Address, err)
		}
		if found {
			adopted = append(adopted, a.Address)
			r.Emit(event.Event{Kind: event.Resource, Layer: s.Layer, Stage: s.Name, Address: a.Address, Action: "import", Text: "it exists already"})
		}
	}
	return adopted, nil
}

func adoptOne(ctx context.Context, r *run.Run, s *config.Stage, a *config.Adopt, work *run.Workspace, st *state.State) (bool, error) {
	id, diags := a.ID(s, r.Outputs.Scope(s))
	if diags.HasErrors() {
		return false, diags
	}
	if id == "" {
		return false, nil
	}
	if a.Exists != nil {
		if there, err := exists(ctx, r, s, a, st); err != nil || !there {
			return false, err
		}
	}
	err := work.Root.Import(ctx, a.Address, id)
	if errors.Is(err, terraform.ErrNoSuchObject) {
		return false, nil
	}
	return err == nil, err
}

// exists asks whether an adoption has anything to import, until there is an
// answer, an error that lasts, or no time left.
func exists(ctx context.Context, r *run.Run, s *config.Stage, a *config.Adopt, st *state.State) (there bool, err error) {
	question, err := run.Question(r, s, a)
	if err != nil {
		return false, err
	}
	asked := gate.Gate{Name: question.Name, Check: func(ctx context.Context) (err error) {
		there, err = question.Lookup(ctx, cluster.Known(st))
		return err
	}}
	policy := a.Exists.Policy
	if policy.Timeout == 0 {
		policy.Timeout = answerTime
	}
	err = gate.Wait(ctx, asked, policy, gate.Listener{Answer: func(unknown error) {
		if unknown != nil {
			r.Notice(fmt.Sprintf("%s: adopt %s waits for an answer: %v", s.Name, a.Address, unknown))
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
			err, r.Cluster.Command("state show"), r.Cluster.Command("recreate"))
	}
	return false, err
}

// keepAdopted refuses a plan that would delete what was just adopted, be it to
// make it anew: whoever adopts wants to keep. What was imported is forgotten
// again, so that the next run refuses it too.
func keepAdopted(ctx context.Context, r *run.Run, s *config.Stage, work *run.Workspace, plan *terraform.Plan, adopted []string) error {
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
	return errors.Join(err, work.Root.Untrack(ctx, lost))
}
