package castle

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/state"
	"github.com/ephemeral-castle/castle/internal/terraform"
)

// Loss is what a create is about to replace or destroy of a stage.
type Loss struct {
	Stage, Layer string
	Changes      []PlannedChange
}

// UnagreedError says that a stage was left as it is because it would have lost
// something, and nobody has agreed to that.
type UnagreedError struct{ Loss Loss }

func (e *UnagreedError) Error() string {
	var b strings.Builder
	b.WriteString("not confirmed, nothing of it was changed; without a terminal, say --yes. It would lose what exists:")
	for _, c := range e.Loss.Changes {
		fmt.Fprintf(&b, "\n  %s", c)
	}
	return b.String()
}

// agree asks before a plan replaces or destroys anything. Not asked for is what
// finishes something else: what a run that was cut short has made by half or put
// aside, and what that run was told to replace already.
func (r *creation) agree(ctx context.Context, s *config.Stage, work *workshop, plan *terraform.Plan, approved *approval) error {
	if approved != nil {
		return r.within(ctx, approved, work, plan)
	}
	if r.agreed == nil {
		return nil
	}
	dir := r.dir.Stage(s.Name)
	intent, err := dir.Intent().Read()
	if err != nil {
		return err
	}
	st, err := r.readState(dir)
	if err != nil {
		return err
	}
	lost := losses(plan.Changes, st, intent)
	if len(lost) == 0 {
		return nil
	}
	names, err := plan.ChangedAttributes(ctx)
	if err != nil {
		return err
	}
	loss := Loss{Stage: s.Name, Layer: s.Layer}
	loss.Changes, _ = planned(lost, names, nil)
	for i := range loss.Changes {
		loss.Changes[i].Address = r.masker.Hide(loss.Changes[i].Address)
	}
	r.asking.Lock() // one question at a time
	defer r.asking.Unlock()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if yes, err := r.agreed(ctx, loss); err != nil || yes {
		return err
	}
	return &UnagreedError{loss}
}

// losses are the changes by which something is lost that was whole, or that no
// run was told to end before.
func losses(changes []terraform.Change, st *state.State, intent *state.Intent) []terraform.Change {
	aside := map[string]int{} // objects that were replaced and not yet deleted
	for _, res := range st.Resources {
		if res.Deposed {
			aside[res.Address]++
		}
	}
	return slices.DeleteFunc(slices.Clone(changes), func(c terraform.Change) bool {
		switch {
		case c.Action != "replace" && c.Action != "delete":
			return true
		case c.Action == "delete" && aside[c.Address] > 0:
			aside[c.Address]--
			return true
		}
		return c.Reason == "tainted" || intent.Replaces(c.Address)
	})
}
