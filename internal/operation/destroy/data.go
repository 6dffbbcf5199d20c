package destroy

import (
	"context"
	"slices"

	"github.com/ephemeral-castle/castle/internal/event"
	"github.com/ephemeral-castle/castle/internal/run/survival"
)

// saveData saves what outlives the cluster, if the cluster or what brings the data ends now: nothing is
// destroyed before it is proved to be saved, unless the user discards it.
func (d *destruction) saveData(ctx context.Context, stages []*Stage, discard bool) error {
	ending := stages
	if slices.ContainsFunc(stages, func(s *Stage) bool { return s.Record.EndsCluster }) {
		ending = d.all
	}
	target, err := d.run.Cluster.RecordedTarget()
	if err != nil {
		return err
	}
	for _, s := range ending {
		data, err := survival.Recorded(d.run, s.Record, target)
		if err != nil {
			return err
		}
		d.data = append(d.data, data...)
	}
	if discard {
		survival.Discarded(ctx, d.run, d.data)
		return nil
	}
	saved, err := survival.End(ctx, d.run, target, d.data)
	for _, s := range saved {
		d.receipt.rec.Saved = append(d.receipt.rec.Saved,
			event.SavedData{Name: s.Name, Save: s.ID, Place: s.Path, Time: s.Time, Bytes: s.Bytes})
	}
	return err
}
