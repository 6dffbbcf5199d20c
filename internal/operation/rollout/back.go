package rollout

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/event"
	"github.com/ephemeral-castle/castle/internal/operation/create"
	"github.com/ephemeral-castle/castle/internal/run"
	"github.com/ephemeral-castle/castle/internal/run/applied"
)

// Back returns a stage inside the cluster, such as a chart, to the inputs of its last good apply.
func Back(ctx context.Context, c *cluster.Cluster, stage string, o Options) error {
	at := slices.IndexFunc(c.Config.Stages, func(s *config.Stage) bool { return s.Name == stage })
	if at < 0 || len(c.Config.Stages[at].InCluster) == 0 {
		return cluster.Usagef("--rollback %s: no such stage inside the cluster; machines go back with their "+
			"former values", stage)
	}
	ctx, r, err := run.BeginChecked(ctx, c, "rollout", applied.CleanUp)
	if err != nil {
		return err
	}
	x := &rollout{run: r, options: o}
	return r.End(x.back(ctx, c.Config.Stages[at]))
}

func (x *rollout) back(ctx context.Context, s *config.Stage) error {
	if err := x.readSecrets(ctx); err != nil {
		return err
	}
	for _, one := range x.run.Cluster.Config.Stages {
		if _, err := x.run.ReadRecorded(one); err != nil {
			return err
		}
	}
	inputs, differs, err := applied.LastReady(x.run, s)
	if err != nil {
		return err
	}
	began := time.Now()
	x.run.Emit(event.Event{Kind: event.StageStarted, Layer: s.Layer, Stage: s.Name})
	err = create.Back(ctx, x.run, s, inputs, create.Options{Confirm: x.options.ConfirmLoss})
	if err != nil {
		return x.run.Failed(ctx, s.Layer, s.Name, err)
	}
	x.run.Emit(event.Event{Kind: event.StageReady, Layer: s.Layer, Stage: s.Name,
		Seconds: time.Since(began).Seconds()})
	x.run.Notice(s.Name + " is back at what was ready last: " + strings.Join(differs, ", ") +
		"; set that in the configuration, too, or the next create changes it again")
	return nil
}
