package create

import (
	"context"
	"errors"
	"fmt"

	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/run"
)

// earlyPreflight asks a preflight before any stage has changed anything. A
// failure to ask may mean that a volatile secret was rotated since the last run,
// so that is read again once before it counts.
func (r *creation) earlyPreflight(ctx context.Context, s *config.Stage, p *config.Preflight) error {
	var findings gate.Inspection
	err := r.run.Step(s.Name, s.Layer, "preflight", func() (err error) {
		if findings, err = run.Inspect(ctx, r.run, s, p); err == nil || ctx.Err() != nil {
			return err
		}
		for _, need := range p.Needs {
			if need.Volatile {
				if e := r.refreshStage(ctx, need); e != nil {
					return errors.Join(err, e)
				}
				findings, err = run.Inspect(ctx, r.run, s, p)
			}
		}
		return err
	})
	if err != nil {
		return run.NoAnswer(p.Name(), err)
	}
	if err := run.Refuse(r.run, s, p, findings, r.adopts); err != nil {
		return err
	}
	for _, own := range findings.Ours {
		if r.adopts {
			r.run.Notice(fmt.Sprintf("%s is adopted as %s", own.Import.What, own.Import.Address))
			continue
		}
		r.run.Notice(fmt.Sprintf("%s was made by a run that was killed; it is taken over", own.Import.What))
	}
	return nil
}

// importOurs brings what a killed run made into the state, so that it is not
// made twice, and refuses to go on if anything foreign is in the way.
func (r *creation) importOurs(ctx context.Context, s *config.Stage, work *run.Workspace) error {
	for _, p := range s.Preflights {
		findings, err := run.Inspect(ctx, r.run, s, p)
		if err != nil {
			return run.NoAnswer(p.Name(), err)
		}
		if err := run.Refuse(r.run, s, p, findings, r.adopts); err != nil {
			return err
		}
		if err := run.Untrack(ctx, r.run, cluster.StageRef{Name: s.Name, Layer: s.Layer}, work, findings.Lost); err != nil {
			return err
		}
		for _, own := range findings.Ours {
			if err := run.Import(ctx, r.run, s.Name, s.Layer, work, own.Import); err != nil {
				return err
			}
		}
	}
	return nil
}

// recheck asks the preflights again, right before the apply. The plan does not know
// of what has turned out to be the stage's own since: it has to be made anew.
func (r *creation) recheck(ctx context.Context, s *config.Stage) error {
	for _, p := range s.Preflights {
		findings, err := run.Inspect(ctx, r.run, s, p)
		if err != nil {
			return run.NoAnswer(p.Name(), err)
		}
		if err := run.Refuse(r.run, s, p, findings, r.adopts); err != nil {
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
