package status

import (
	"context"
	"time"

	"github.com/ephemeral-castle/castle/internal/run"
	"github.com/ephemeral-castle/castle/internal/run/backup"
)

// Backup is the newest backup of etcd. Without an ID there is none, or Problem says why castle does not know.
type Backup struct {
	ID      string    `json:"id,omitempty"`
	Time    time.Time `json:"time,omitzero"`
	Problem string    `json:"problem,omitempty"`
	// Former: it is of a cluster of this name that was destroyed since.
	Former bool `json:"former,omitempty"`
}

// newestBackup reads the newest backup of a cluster that Talos runs.
func newestBackup(ctx context.Context, r *run.Run) *Backup {
	if r.Outputs.Target().Talosconfig == nil {
		return nil
	}
	shelf, err := r.Cluster.Backups(ctx)
	if err != nil {
		return &Backup{Problem: err.Error()}
	}
	b, err := shelf.Newest(ctx)
	switch {
	case err != nil:
		return &Backup{Problem: err.Error()}
	case b == nil:
		return &Backup{}
	}
	life := backup.Life(ctx, r)
	return &Backup{ID: b.ID, Time: b.Time, Former: life != "" && b.Life != "" && life != b.Life}
}
