package destroy

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"

	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/event"
	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/proxmox"
	"github.com/ephemeral-castle/castle/internal/run"
	"github.com/ephemeral-castle/castle/internal/run/recovery"
	"github.com/ephemeral-castle/castle/internal/state"
	"github.com/ephemeral-castle/castle/internal/terraform"
)

// stageDestruction destroys one recorded stage.
type stageDestruction struct {
	destruction *destruction
	run         *run.Run
	stage       *Stage
	dir         *state.Stage
}

// restate reads the stage's state again.
func (s *stageDestruction) restate() (err error) {
	if s.stage.state, err = s.run.ReadState(s.dir); err != nil {
		return err
	}
	s.stage.Resources = s.stage.managed()
	s.stage.inFlight, err = recovery.InFlight(s.dir, s.stage.state)
	return err
}

// importInterrupted imports the objects that an interrupted run was making, so that they are destroyed too.
func (s *stageDestruction) importInterrupted(ctx context.Context, work *run.Workspace,
	lost []state.Intended) error {
	if slices.ContainsFunc(
		lost,
		func(c state.Intended) bool { return recovery.IsInCluster(c.Type, s.stage.Record.InCluster) },
	) {
		if err := s.destruction.reachable(ctx); err != nil {
			return err
		}
	}
	kubeconfig, err := os.ReadFile(s.run.Cluster.Dir.Kubeconfig())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	o := recovery.Lookup{
		Cluster: gate.Target{Kubeconfig: kubeconfig}, InCluster: s.stage.Record.InCluster,
		Datacenter: func() (*proxmox.Client, error) { return s.destruction.datacenter(s.stage) },
	}
	if err := recovery.Import(ctx, s.run,
		cluster.StageRef{Name: s.stage.Record.Name, Layer: s.stage.Record.Layer}, work, lost, o); err != nil {
		return err
	}
	return s.restate()
}

// destroyStage destroys the stage, verifies that it is gone, and removes its record.
func (s *stageDestruction) destroyStage(ctx context.Context) error {
	err := s.run.Retry(
		ctx,
		s.stage.Record.Name,
		s.stage.Record.Layer,
		func(again bool) error { return s.destroyResources(ctx, again) },
	)
	if err != nil && !s.stage.attempted {
		return err
	}
	if err != nil {
		return s.partialFailure(ctx, err)
	}
	if err := s.verify(ctx); err != nil {
		return err
	}
	if s.stage.EndsWithCluster {
		s.destruction.mu.Lock()
		defer s.destruction.mu.Unlock()
		s.destruction.deferred = append(s.destruction.deferred, s.stage)
		return nil
	}
	if s.stage.Record.EndsCluster {
		// Before the platform's own record goes: a run killed in between finds
		// it again and knows that the rest needs no cluster any more.
		if err := s.destruction.archiveDeferred(); err != nil {
			return err
		}
	}
	if err := s.dir.Remove(); err != nil {
		return err
	}
	if err := s.destruction.receipt.noteRemoved(s.stage, ""); err != nil {
		return err
	}
	s.run.Emit(event.Event{Kind: event.StageGone, Layer: s.stage.Record.Layer, Stage: s.stage.Record.Name})
	return nil
}

// destroyResources destroys the Terraform resources of a stage: all of them, or only the survivors if the
// cluster ends anyway. It first imports objects that a killed run has not recorded. A stage without
// resources needs no Terraform.
func (s *stageDestruction) destroyResources(ctx context.Context, again bool) (err error) {
	if s.stage.denied != nil {
		return s.stage.denied
	}
	if again {
		if err := s.restate(); err != nil {
			return err
		}
	}
	ours, outdated, err := s.checkOwnership(ctx)
	if err != nil {
		return err
	}
	lost := s.stage.lost()
	if len(s.stage.targets()) == 0 && len(ours) == 0 && len(lost) == 0 {
		return s.verifyAdopted(ctx, nil)
	}
	if !s.stage.begun {
		s.stage.begun = true
		s.run.Emit(
			event.Event{Kind: event.StageStarted, Layer: s.stage.Record.Layer, Stage: s.stage.Record.Name},
		)
	}
	if err := s.checkBlocked(ctx); err != nil {
		return err
	}
	release, err := s.run.Slot(ctx)
	if err != nil {
		return err
	}
	defer release()
	work, err := run.RecordedWorkspace(ctx, s.run, s.stage.Record)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, work.Close()) }()
	if err := errors.Join(s.dir.Fingerprint().Clear(), s.dir.Snapshot(), s.saveHeld()); err != nil {
		return err
	}
	if err := run.Untrack(ctx, s.run,
		cluster.StageRef{Name: s.stage.Record.Name, Layer: s.stage.Record.Layer}, work,
		outdated); err != nil {
		return err
	}
	for _, one := range ours {
		if err := run.Import(ctx, s.run, s.stage.Record.Name, s.stage.Record.Layer, work, one); err != nil {
			return err
		}
	}
	if err := s.importInterrupted(ctx, work, lost); err != nil {
		return err
	}
	if err := s.saveOwned(ctx); err != nil {
		return err
	}
	if err := s.revoke(ctx); err != nil {
		return err
	}
	return s.terraform(ctx, work)
}

// terraform destroys the resources in the stage's state.
func (s *stageDestruction) terraform(ctx context.Context, work *run.Workspace) error {
	targets := s.stage.targets()
	if len(targets) == 0 {
		return s.verifyAdopted(ctx, nil)
	}
	options := terraform.PlanOptions{Destroy: true}
	switch {
	case s.stage.EndsWithCluster:
		options.Targets = targets
	case len(s.stage.inCluster()) > 0:
		if err := s.destruction.reachable(ctx); err != nil {
			return err
		}
		var stop context.CancelFunc
		ctx, stop = context.WithTimeoutCause(ctx, inClusterBound, s.destruction.timeoutCause())
		defer stop()
	}
	err := s.run.Step(s.stage.Record.Name, s.stage.Record.Layer, "destroy", func() error {
		plan, err := work.Root.Plan(ctx, options)
		if err != nil {
			return err
		}
		var intended []state.Intended
		for _, c := range plan.Changes {
			intended = append(intended, state.Intended{Address: c.Address, Type: c.Type, Action: c.Action})
		}
		s.stage.attempted = true
		return work.Apply(ctx, s.run, s.dir, plan, intended)
	})
	if err == nil {
		return s.verifyAdopted(ctx, targets)
	}
	if !s.stage.attempted && ctx.Err() == nil {
		err = fmt.Errorf(
			"%w\n  nothing of it was destroyed; if what does not answer is gone for good, forget what was "+
				"kept there: %s %s ADDRESS",
			err,
			s.run.Cluster.Command("state forget"),
			s.stage.Record.Name,
		)
	}
	return run.During("destroy", err)
}

// checkOwnership runs the recorded preflights. ours lists objects that a killed run made and the state
// lacks; lost lists objects in the state that no longer belong to the stage. Foreign objects are reported
// and left alone. It fails if the state treats a foreign object as the stage's own, or if castle cannot
// verify an owner.
func (s *stageDestruction) checkOwnership(
	ctx context.Context,
) (ours []gate.Import, lost []string, err error) {
	var refused error
	err = s.inspectRecorded(ctx, func(preflight string, f gate.Inspection) {
		lost = append(lost, f.Lost...)
		for _, own := range f.Ours {
			ours = append(ours, own.Import)
		}
		mistaken := slices.Clone(f.Unverified)
		for _, foreign := range f.Foreign {
			if foreign.ConflictsWith != "" || foreign.Unverified {
				if foreign.ConflictsWith != "" {
					foreign.Fixes = nil // they are for a create
				}
				mistaken = append(mistaken, foreign)
				continue
			}
			s.run.Notice(fmt.Sprintf("%s is not this cluster's and stays", foreign.What))
		}
		if len(mistaken) > 0 {
			refused = errors.Join(refused, &run.PreflightError{
				Preflight: preflight, Foreign: mistaken,
				TerraformCommand: s.run.Cluster.TerraformCommand(s.stage.Record.Name),
				UntrackCommand:   s.run.Cluster.UntrackCommand(s.stage.Record.Name),
			})
		}
	})
	return ours, lost, errors.Join(err, refused)
}

func (s *stageDestruction) inspectRecorded(ctx context.Context, see func(string, gate.Inspection)) error {
	all, err := run.ExpectedResources(s.dir, s.stage.state)
	if err != nil {
		return err
	}
	return s.eachRecorded(func(preflight gate.Preflight) error {
		findings, err := preflight.Inspect(ctx, all, s.run.Notice)
		if err != nil {
			return run.NoAnswer(preflight.Name, err)
		}
		see(preflight.Name, findings)
		return nil
	})
}

// revoke ends the credentials that the stage's objects issued, such as Vault's leases.
func (s *stageDestruction) revoke(ctx context.Context) error {
	return s.eachRecorded(func(preflight gate.Preflight) error {
		if preflight.Revoke == nil {
			return nil
		}
		return s.run.Step(s.stage.Record.Name, s.stage.Record.Layer, "revoke", func() error {
			if err := preflight.Revoke(ctx, cluster.Known(s.stage.state), s.run.Notice); err != nil {
				return fmt.Errorf("%s: %w", preflight.Name, err)
			}
			return nil
		})
	})
}

// eachRecorded calls do with each recorded preflight of the stage.
func (s *stageDestruction) eachRecorded(do func(gate.Preflight) error) error {
	for _, check := range s.stage.Record.Preflights {
		for _, typ := range cluster.PreflightTypes() {
			if typ.Name != check.Type {
				continue
			}
			values, err := check.Decode()
			if err != nil {
				return err
			}
			preflight, err := typ.New(check.Type+"."+check.Label,
				gate.Target{Environ: s.run.Cluster.Options.Environ}, values)
			if err != nil {
				return err
			}
			if err := do(preflight); err != nil {
				return err
			}
		}
	}
	return nil
}
