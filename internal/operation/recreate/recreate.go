// Package recreate destroys a cluster and creates it again as one run. It is the one operation that uses two
// others. How far it has come is on disk before each half.
package recreate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/siderolabs/gen/xslices"

	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/operation/create"
	"github.com/ephemeral-castle/castle/internal/operation/destroy"
	"github.com/ephemeral-castle/castle/internal/run"
	"github.com/ephemeral-castle/castle/internal/run/applied"
	"github.com/ephemeral-castle/castle/internal/run/survival"
	"github.com/ephemeral-castle/castle/internal/state"
)

// Options configure a recreate.
type Options struct {
	Rotate   bool // destroy the secrets layer too
	Graceful bool // destroy the resources in the cluster before the cluster
	Refresh  bool // apply even what is up to date
	// DiscardData destroys the cluster without saving its data.
	DiscardData bool
	Backup      string // see create.Options
}

func (o Options) destroy() destroy.Options {
	return destroy.Options{Graceful: o.Graceful, KeepSecrets: !o.Rotate, DiscardData: o.DiscardData}
}

// Plan lists the stages that a recreate would destroy before it creates the cluster again.
type Plan struct {
	Stages     []*destroy.Stage
	Kept       []string // stages of the secrets layer that stay
	Persistent []string
	// Destroyed is when a recreate began that has destroyed the cluster and now
	// resumes with its create; zero if there is none. Stages is empty then.
	Destroyed time.Time

	options Options
}

// Prepare returns the plan of Run. An interrupted recreate continues with the create after its destroy. It
// destroys again only if the user now asks to rotate secrets and the first part did not.
func Prepare(ctx context.Context, c *cluster.Cluster, o Options) (*Plan, error) {
	re := &Plan{options: o}
	begun, err := c.Dir.Recreation().Read()
	if err != nil {
		return nil, err
	}
	if continues(begun, o) {
		re.Destroyed = begun.Began
		return re, nil
	}
	if re.Stages, err = destroy.Select(c, o.destroy()); err != nil {
		return nil, err
	}
	if _, err := destroy.Nothing(ctx, c, o.destroy()); err != nil {
		return nil, err
	}
	all, err := destroy.RecordedStages(c)
	if err != nil {
		return nil, err
	}
	for _, d := range all {
		switch {
		case contains(re.Stages, d):
		case d.Record.Persistent:
			re.Persistent = append(re.Persistent, d.Record.Name)
		default:
			re.Kept = append(re.Kept, d.Record.Name)
		}
	}
	if len(all) == 0 && begun == nil { // the user may have mistyped the name
		return nil, cluster.Usagef("%s: nothing to create again\n  `castle create %s` creates it",
			c.Name(), c.Options.Cluster)
	}
	return re, nil
}

func contains(stages []*destroy.Stage, d *destroy.Stage) bool {
	return slices.ContainsFunc(stages, func(x *destroy.Stage) bool { return x.Record.Name == d.Record.Name })
}

func continues(begun *state.Recreation, o Options) bool {
	return begun != nil && begun.Destroyed && (begun.Rotate || !o.Rotate)
}

// Run destroys the cluster and creates it again, as one run under one lock. It creates nothing if
// anything is left over. The progress is on disk before each half, so that the same command resumes it.
func Run(ctx context.Context, c *cluster.Cluster, re *Plan) error {
	ctx, r, err := run.BeginChecked(ctx, c, "recreate", applied.CleanUp)
	if err != nil {
		return err
	}
	return r.End(recreate(ctx, r, re))
}

func recreate(ctx context.Context, r *run.Run, re *Plan) error {
	// Without Terraform a destroyed cluster could not be created again.
	if _, err := r.Binary(); err != nil {
		return err
	}
	begun, err := r.Cluster.Dir.Recreation().Read()
	if err != nil {
		return err
	}
	switch {
	case re.Destroyed.IsZero():
		if err := destroyFirst(ctx, r, re); err != nil {
			return err
		}
	case !continues(begun, re.options):
		return errChanged(r.Cluster)
	default:
		r.Notice(fmt.Sprintf("run %s has destroyed the cluster; resuming with the create", begun.Run))
	}
	o := create.Options{Refresh: re.options.Refresh, Backup: re.options.Backup}
	if err := create.Stages(ctx, r, r.Cluster.Config.Stages, o); err != nil {
		return err
	}
	return r.Cluster.Dir.Recreation().Clear()
}

// destroyFirst destroys the confirmed stages, and records when all are gone.
func destroyFirst(ctx context.Context, r *run.Run, re *Plan) error {
	stages, err := destroy.Restored(r, re.options.destroy())
	if err != nil {
		return err
	}
	for _, d := range stages {
		if !contains(re.Stages, d) {
			return errChanged(r.Cluster)
		}
	}
	if len(stages) > 0 {
		if err := checkReadable(ctx, r); err != nil {
			return fmt.Errorf("%w\n  nothing was destroyed", err)
		}
		if re.options.Backup != "" {
			if _, err := r.LastKnownStates(); err != nil {
				return err
			}
			if err := survival.Find(ctx, r, re.options.Backup); err != nil {
				return fmt.Errorf("%w\n  nothing was destroyed", err)
			}
		}
		if stages, err = destroy.Restored(r, re.options.destroy()); err != nil { // it has applied
			return err
		}
	}
	progress := state.Recreation{Run: r.ID, Began: r.Began, Rotate: re.options.Rotate}
	// Nothing is left to restore.
	dir := r.Cluster.Dir
	if err := errors.Join(dir.Recreation().Write(progress), dir.Restoration().Clear()); err != nil {
		return err
	}
	// Without any stage it writes no receipt, unless one is due.
	due, err := destroy.ReceiptDue(r.Cluster)
	if err == nil && (due || len(stages) > 0) {
		err = destroy.Stages(ctx, r, stages, re.options.destroy())
	}
	if err != nil {
		return err
	}
	left, err := destroy.Select(r.Cluster, re.options.destroy())
	if err != nil {
		return err
	}
	if len(left) > 0 {
		leftover := &run.LeftoverError{}
		for _, d := range left {
			leftover.Left = append(leftover.Left, "stage "+d.Record.Name)
		}
		return leftover
	}
	progress.Destroyed = true
	return r.Cluster.Dir.Recreation().Write(progress)
}

// checkReadable reads the volatile stages of the secrets layer once more. Without that access a create
// after the destroy would fail.
func checkReadable(ctx context.Context, r *run.Run) error {
	volatile := xslices.Filter(r.Cluster.Config.Stages, func(s *config.Stage) bool {
		return s.Volatile && s.Layer == cluster.SecretsLayer && !s.NeedsPlatform && len(s.Needs) == 0
	})
	return create.Stages(ctx, r, volatile, create.Options{Refresh: true})
}

func errChanged(c *cluster.Cluster) error {
	return cluster.Usagef("%s: another run has changed the cluster meanwhile; nothing was done, look again",
		c.Name())
}
