package volumes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/ephemeral-castle/castle/lab/internal/backupstore"
)

// restores is what a restore takes beside its requests.
const restores = 2 * time.Second

// initRestore begins the restore of a volume that is made from a backup (volume_controller.go,
// checkAndInitVolumeRestore).
func (s *state) initRestore(v *volume) error {
	if v.Spec.FromBackup == "" || v.Status.RestoreInitiated {
		return nil
	}
	name, _, err := backupstore.DecodeURL(v.Spec.FromBackup)
	if err != nil {
		return fmt.Errorf("failed to get backup name from backup URL %v: %w", v.Spec.FromBackup, err)
	}
	b := s.backupOf(name)
	if b == nil {
		return fmt.Errorf(
			"failed to inspect the backup config %v: backup.longhorn.io %q not found",
			v.Spec.FromBackup,
			name,
		)
	}
	if v.Status.ActualSize, err = strconv.ParseInt(b.Status.Size, 10, 64); err != nil {
		return fmt.Errorf("failed to get the size of backup %v: %w", v.Spec.FromBackup, err)
	}
	var of kubernetesStatus
	if text := b.Status.Labels[labelStatus]; text != "" && json.Unmarshal([]byte(text), &of) == nil {
		if of.PVCName != "" && of.LastPVCRefAt == "" {
			of.LastPVCRefAt = b.Status.SnapshotCreatedAt
		}
		of.PVName, of.PVStatus = "", ""
	}
	v.Status.KubernetesStatus = of
	v.Status.RestoreRequired, v.Status.RestoreInitiated = true, true
	return nil
}

func (s *state) backupOf(name string) *backup {
	for _, b := range s.backups {
		if b.Name == name {
			return b
		}
	}
	return nil
}

// restore fills a volume from its backup while it is attached without a frontend. Outside, each replica reads
// the store; here one does, and the others copy it. If that fails, all replicas have failed.
func (s *state) restore(ctx context.Context, v *volume, e *engine) error {
	if !v.Status.RestoreRequired || e == nil {
		return nil
	}
	backup, volume, err := backupstore.DecodeURL(v.Spec.FromBackup)
	if err != nil {
		return err
	}
	name, running := "restore "+v.Name, s.running(v)
	if len(running) == 0 || v.Status.Robustness == "faulted" {
		s.w.Restart(name)
		return nil
	}
	e.Spec.BackupVolume, e.Spec.RequestedBackupRestore = volume, backup
	if e.Status.LastRestoredBackup == backup {
		v.Status.RestoreRequired = false
		return nil
	}
	s.restoring(v, "True", "RestoreInProgress", "")
	if !s.w.Passed(name, restores) || s.target == nil {
		return nil
	}
	open, err := s.opener(ctx)
	if err != nil {
		return err
	}
	to, head := running[0].Name, s.contents.head(running[0])
	t := s.tasks.start(name, func(ctx context.Context, t *task) (any, error) {
		store, err := open(ctx)
		if err != nil {
			return nil, err
		}
		return to, store.Restore(ctx, volume, backup, func(percent int) { t.percent.Store(int64(percent)) },
			func(offset int64, block []byte) error { return write(head, offset, block) })
	})
	filled, failed, ended := s.tasks.take(name)
	var from *replica // another one may be the first by now
	for _, r := range running {
		if r.Name == filled {
			from = r
		}
	}
	if ended && failed == nil && from == nil {
		return nil // it has failed meanwhile: the next look restores another one
	}
	is := restoreStatus{IsRestoring: !ended, CurrentRestoringBackup: backup, Progress: t.percent.Load(),
		State: "in_progress", BackupURL: v.Spec.FromBackup}
	switch {
	case !ended:
	case failed != nil:
		is.State, is.Error = "error", failed.Error()
	default:
		is.State, is.Progress, is.LastRestored, e.Status.LastRestoredBackup = "complete", 100, backup, backup
	}
	e.Status.RestoreStatus = map[string]restoreStatus{}
	var errs []error
	for _, r := range running {
		e.Status.RestoreStatus[addressOf(r)] = is
		switch {
		case failed != nil:
			r.Spec.FailedAt, r.Spec.DesireState, r.Status.CurrentState = s.now(), "stopped", "stopped"
			s.warn(ctx, v, "FailedRestore", fmt.Sprintf("replica %v failed the restore: %s", r.Name, failed))
		case ended && r != from:
			errs = append(errs, s.contents.copyTo(r, from))
		}
	}
	return errors.Join(errs...)
}

// restoring sets the condition Restore of a volume.
func (s *state) restoring(v *volume, value, reason, message string) {
	status := map[string]any{"conditions": v.Status.Conditions}
	s.w.SetCondition(status, "Restore", value, reason, message, 0)
	v.Status.Conditions, _ = status["conditions"].([]any)
}

// detached sets what the end of an attachment leaves of a restore.
func (s *state) detached(v *volume) {
	switch {
	case v.Spec.FromBackup == "" || v.Status.State != "detached":
	case v.Status.RestoreRequired && v.Status.Robustness == "faulted":
		s.restoring(v, "False", "RestoreFailure", "All replica restore failed and the volume became Faulted")
	case !v.Status.RestoreRequired:
		s.restoring(v, "False", "", "")
	}
}
