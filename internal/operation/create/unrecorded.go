package create

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"

	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/run"
	"github.com/ephemeral-castle/castle/internal/run/unrecorded"
	"github.com/ephemeral-castle/castle/internal/run/waiting"
	"github.com/ephemeral-castle/castle/internal/talos"
)

// checkUnrecorded looks beyond a preflight, which has found the machines at the configured ids: ours. It
// refuses to create machines beside others of this cluster, and to take over those that nobody can reach.
func (c *creation) checkUnrecorded(ctx context.Context, s *config.Stage, p *config.Preflight,
	ours []gate.Own) error {
	if cluster.Platforms().OfMachines(p.Type.Name) == nil {
		return nil
	}
	if c.adopts {
		return c.checkSecrets(ctx, s, p, ours)
	}
	if _, err := c.run.Cluster.Dir.Stage(s.Name).Record(); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	found, err := unrecorded.Look(ctx, c.run, []*config.Stage{s})
	if err != nil {
		return err
	}
	return found.Refusal(c.run.Cluster, "nothing was created")
}

// checkSecrets refuses to take over machines that run with secrets which nobody here has. It asks before
// anything is imported, and before this run makes new secrets.
func (c *creation) checkSecrets(ctx context.Context, s *config.Stage, p *config.Preflight,
	ours []gate.Own) error {
	castle := c.run.Cluster
	if len(ours) == 0 {
		return nil
	}
	recorded := run.Observe(ctx, castle) // the outputs before this run
	states, err := recorded.LastKnownStates()
	if err != nil {
		return err
	}
	why := ""
	back := "if a copy of the state that holds them is left, bring it back: " + castle.Command("state show")
	for _, need := range s.Needs {
		if need.Layer == cluster.SecretsLayer && !need.Volatile && !states[need].Exists {
			why = fmt.Sprintf("stage %s, which makes the secrets, has no state", need.Name)
			folder := filepath.Dir(castle.Dir.Stage(need.Name).StatePath())
			back = "bring this folder back from a backup: " + folder
		}
	}
	runs := func(own gate.Own) bool { return own.Running }
	var all []waiting.Adoption
	for _, next := range castle.Config.Stages { // the one that configures the machines
		if next != s && !slices.Contains(next.Needs, s) || !slices.ContainsFunc(ours, runs) {
			continue
		}
		more, incomplete := waiting.Adoptions(recorded, next, states[next])
		if incomplete == nil {
			why = ""
		}
		all = append(all, more...)
	}
	for _, one := range all {
		if one.Lookup == nil {
			continue
		}
		_, err := exists(ctx, c.run, s, one)
		switch {
		case errors.Is(err, talos.ErrOtherSecrets):
			why = errors.Unwrap(err).Error()
		case err != nil: // the stage would import the machines, and then fail for the same reason
			return fmt.Errorf("adopt %s: %w", one.Address, err)
		}
	}
	if why == "" {
		return nil
	}
	return &run.PreflightError{Preflight: p.Name(), Foreign: []gate.Foreign{{
		What: "machines of this cluster run with secrets that are not here; nothing was imported", Why: why,
		Fixes: append(waiting.OtherStateFixes(castle), back),
	}}}
}
