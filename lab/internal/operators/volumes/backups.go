package volumes

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ephemeral-castle/castle/lab/internal/backupstore"
	"github.com/ephemeral-castle/castle/lab/internal/operators/cluster"
)

const (
	blockSize = int64(backupstore.BlockSize)
	// backsUp is what a backup takes beside its requests: Longhorn looks every 2 s.
	backsUp = 2 * time.Second
	// mostTries is how often Longhorn looks for an engine and a snapshot before a backup fails.
	mostTries = 5
)

// The labels of Longhorn's objects, and those that it writes into a store.
const (
	labelTarget     = "backup-target"
	labelVolume     = "backup-volume"
	labelOnly       = "longhorn.io/delete-custom-resource-only"
	labelAccessMode = "longhorn.io/volume-access-mode"
	labelJobs       = "VolumeRecurringJobInfo"
	labelStatus     = "KubernetesStatus"
)

func (b *backup) ended() bool {
	switch b.Status.State {
	case "Completed", "Error", "Unknown", "Deleting":
		return true
	}
	return false
}

// backup takes the steps of a backup (backup_controller.go): it is made from a snapshot, and then its status
// is what the store has of it.
func (s *state) backup(ctx context.Context, b *backup) error {
	volume := b.Labels[labelVolume]
	if volume == "" {
		return nil
	}
	if b.DeletionTimestamp != nil {
		return s.deleteBackup(ctx, b, volume)
	}
	if s.target == nil {
		return fmt.Errorf("backup target is nil for backup %v", b.Name)
	}
	was := *b
	if b.Status.LastSyncedAt == "" && b.Spec.SnapshotName != "" && !b.ended() {
		err := s.make(ctx, b, volume)
		if err != nil || b.Status.State != "Completed" {
			return errors.Join(err, save(ctx, s.w, "backups", &was, b))
		}
		if err := s.syncVolumeOf(ctx, volume); err != nil {
			return err
		}
	}
	if requested(b.Spec.SyncRequestedAt, b.Status.LastSyncedAt) {
		s.inspect(b, volume)
	}
	return save(ctx, s.w, "backups", &was, b)
}

// requested reports whether something has to be read from the store: never so far, or since a later second.
func requested(at, last string) bool {
	if last == "" {
		return true
	}
	wanted, err := time.Parse(time.RFC3339, at)
	done, failed := time.Parse(time.RFC3339, last)
	return err == nil && failed == nil && wanted.After(done)
}

// make makes a backup of a snapshot.
func (s *state) make(ctx context.Context, b *backup, volume string) error {
	v, name := s.volumeOf(volume), "backup "+b.Name
	if v == nil {
		return s.fail(
			b,
			fmt.Sprintf("cannot find the corresponding volume: volume.longhorn.io %q not found", volume),
		)
	}
	s.attaches(volume, byBackup, b.Name)
	b.Status.VolumeSize = v.Spec.Size
	if b.Status.State == "InProgress" {
		if !s.tasks.runs(name) { // it ran in a process that has ended
			return s.fail(b, fmt.Sprintf("cannot find backup %s status in longhorn engine", b.Name))
		}
		return s.follow(ctx, b, v, name)
	}
	running := s.running(v)
	if len(running) == 0 || v.Status.RestoreRequired {
		if v.Status.State == "attached" {
			return s.waits(
				b,
				"Waiting for the engine %v to be ready",
				"Failed waiting for the engine %v to be ready",
				engineOf(volume),
			)
		}
		return nil
	}
	sn := s.snapshotOf(b.Spec.SnapshotName)
	if sn == nil {
		return s.waits(
			b,
			"Failed to get the Snapshot %v",
			"Failed to get the Snapshot %v",
			b.Spec.SnapshotName,
		)
	}
	if !sn.Status.ReadyToUse {
		return s.waits(
			b,
			"Waiting for the snapshot %v to be ready",
			"Failed waiting for the snapshot %v to be ready",
			sn.Name,
		)
	}
	b.Status.SnapshotCreatedAt = sn.Status.CreationTime
	for _, other := range s.backups {
		if other.Labels[labelVolume] == volume && other.Status.State == "Deleting" {
			b.Status.State = "Pending"
			b.Status.Messages = map[string]string{
				"info": fmt.Sprintf("Wait for backup %v to be deleted", other.Name),
			}
			return nil
		}
	}
	if !s.w.Passed(name, backsUp) {
		return nil
	}
	open, err := s.opener(ctx)
	if err != nil {
		return s.fail(b, err.Error())
	}
	from, request := source{s.contents, running[0], sn.Name}, s.request(ctx, b, v)
	s.tasks.start(name, func(ctx context.Context, t *task) (any, error) {
		store, err := open(ctx)
		if err != nil {
			return nil, err
		}
		request.Progress = func(percent int) { t.percent.Store(int64(percent)) }
		return store.Create(ctx, request, from)
	})
	b.Status.State, b.Status.SnapshotName, b.Status.Messages = "InProgress", sn.Name, nil
	b.Status.ReplicaAddress = addressOf(running[0])
	return nil
}

// addressOf is a replica's, as engines name it. The lab's have no addresses.
func addressOf(r *replica) string { return "tcp://" + r.Name + ":10000" }

// request is a backup as the engine gets it.
func (s *state) request(ctx context.Context, b *backup, v *volume) backupstore.Request {
	size, _ := strconv.ParseInt(v.Spec.Size, 10, 64)
	labels := map[string]string{labelJobs: "{}"}
	for key, value := range b.Spec.Labels {
		labels[key] = value
	}
	class, of := "", v.Status.KubernetesStatus
	if of.PVCName != "" && of.LastPVCRefAt == "" {
		pvc, err := s.w.Typed.CoreV1().
			PersistentVolumeClaims(of.Namespace).
			Get(ctx, of.PVCName, metav1.GetOptions{})
		if err == nil && pvc.Spec.StorageClassName != nil {
			class = *pvc.Spec.StorageClassName
		}
	}
	return backupstore.Request{Name: b.Name, SnapshotName: b.Spec.SnapshotName,
		SnapshotCreatedAt: b.Status.SnapshotCreatedAt, Labels: labels,
		Volume: backupstore.Volume{Name: v.Name, Size: size, Labels: labels, StorageClassName: class,
			CompressionMethod: v.Spec.BackupCompressionMethod, DataEngine: "v1"},
		Parameters: map[string]string{backupstore.ParameterMode: b.Spec.BackupMode,
			backupstore.ParameterBlockSize: b.Spec.BackupBlockSize}}
}

// follow takes over what the engine reports of a backup.
func (s *state) follow(ctx context.Context, b *backup, v *volume, name string) error {
	b.Status.Progress = s.tasks.all[name].percent.Load()
	value, err, ended := s.tasks.take(name)
	if !ended {
		return nil
	}
	if err != nil {
		s.warn(ctx, v, "Error", fmt.Sprintf("Snapshot %s backup %s label %v: %s", b.Spec.SnapshotName, b.Name,
			b.Spec.Labels, err))
		return s.fail(b, err.Error())
	}
	b.Status.State, b.Status.Progress = "Completed", 100
	b.Status.URL = backupstore.EncodeURL(b.Name, v.Name, s.target.Spec.BackupTargetURL)
	if written, _ := value.([]string); s.incomplete && len(written) > 0 {
		return s.lose(ctx, v.Name, written[len(written)-1])
	}
	return nil
}

// lose is the fault backup-incomplete: a backup that is complete lacks a block.
func (s *state) lose(ctx context.Context, volume, sum string) error {
	open, err := s.opener(ctx)
	if err != nil {
		return err
	}
	store, err := open(ctx)
	if err != nil {
		return err
	}
	s.w.Tell("backup-incomplete", false)
	err = store.Lose(ctx, volume, sum)
	s.w.Tell("backup-incomplete", true)
	s.incomplete = false
	return err
}

// fail is the end of a backup.
func (s *state) fail(b *backup, why string) error {
	b.Status.State, b.Status.Error, b.Status.LastSyncedAt = "Error", why, s.now()
	delete(s.tries, b.Name)
	return nil
}

// waits lets a backup wait for something, and fail in the end.
func (s *state) waits(b *backup, waits, failed, what string) error {
	if s.tries[b.Name]++; s.tries[b.Name] >= mostTries {
		return s.fail(b, fmt.Sprintf(failed, what))
	}
	b.Status.State, b.Status.Messages = "Pending", map[string]string{"info": fmt.Sprintf(waits, what)}
	return nil
}

// inspect sets the status of a backup to what the store has.
func (s *state) inspect(b *backup, volume string) {
	open, err := s.opener(context.Background())
	if err != nil {
		return
	}
	found, err, ended := s.ask("inspect "+b.Name, func(ctx context.Context, _ *task) (any, error) {
		store, err := open(ctx)
		if err != nil {
			return nil, err
		}
		return look(ctx, store, volume, b.Name)
	})
	if is, _ := found.(*inspected); ended && err == nil {
		at := b.Status
		b.Status = backupStatus{State: "Completed", Progress: at.Progress, ReplicaAddress: at.ReplicaAddress,
			Error: at.Error, URL: is.url, SnapshotName: is.backup.SnapshotName,
			SnapshotCreatedAt: is.backup.SnapshotCreatedAt, BackupCreatedAt: is.backup.CreatedTime,
			Size: strconv.FormatInt(is.backup.Size, 10), Labels: is.backup.Labels,
			VolumeName: is.volume.Name, VolumeSize: strconv.FormatInt(is.volume.Size, 10),
			VolumeCreated: is.volume.CreatedTime, VolumeBackingImageName: is.volume.BackingImageName,
			LastSyncedAt: s.now(), CompressionMethod: is.backup.CompressionMethod,
			NewlyUploadedDataSize: strconv.FormatInt(is.backup.NewlyUploadedDataSize, 10),
			ReUploadedDataSize:    strconv.FormatInt(is.backup.ReUploadedDataSize, 10),
			BackupTargetName:      s.target.Name}
		delete(b.Status.Labels, labelJobs)
	}
}

// inspected is what the store has of a backup.
type inspected struct {
	url    string
	backup *backupstore.Backup
	volume *backupstore.Volume
}

func look(ctx context.Context, store *backupstore.Store, volume, name string) (*inspected, error) {
	v, _, err := store.Volume(ctx, volume)
	if err != nil {
		return nil, err
	}
	b, err := store.Backup(ctx, volume, name)
	if err != nil {
		return nil, err
	}
	return &inspected{backupstore.EncodeURL(name, volume, store.URL()), b, v}, nil
}

// deleteBackup deletes a backup in the store, too, unless its label forbids it or the store is not available.
func (s *state) deleteBackup(ctx context.Context, b *backup, volume string) error {
	was, name := *b, "delete "+b.Name
	of := s.backupVolumeOf(volume)
	if s.cleans(b.Labels) && of != nil && of.DeletionTimestamp == nil {
		for _, v := range s.volumes {
			if from, _, err := backupstore.DecodeURL(v.Spec.FromBackup); err == nil && from == b.Name &&
				v.Status.RestoreRequired && s.tasks.runs("restore "+v.Name) {
				return fmt.Errorf(
					"backup %v cannot be deleted due to the ongoing volume %v restoration",
					b.Name,
					v.Name,
				)
			}
		}
		open, err := s.opener(ctx)
		if err != nil {
			return err
		}
		_, err, ended := s.ask(name, func(ctx context.Context, _ *task) (any, error) {
			store, err := open(ctx)
			if err != nil {
				return nil, err
			}
			return nil, store.Delete(ctx, volume, b.Name)
		})
		switch {
		case !ended && s.tasks.runs(name):
			b.Status.State, b.Status.Messages = "Deleting", nil
			return save(ctx, s.w, "backups", &was, b)
		case !ended:
			return nil
		case err != nil:
			b.Status.State = "Error"
			b.Status.Messages = map[string]string{
				"error": fmt.Sprintf("Failed to delete the backup %v in the "+
					"backupstore, err %v", backupstore.EncodeURL(b.Name, volume,
					s.target.Spec.BackupTargetURL), err),
			}
			return save(ctx, s.w, "backups", &was, b)
		}
	}
	if of != nil && of.DeletionTimestamp == nil && of.Status.LastBackupName == b.Name {
		if err := s.syncVolumeOf(ctx, volume); err != nil {
			return err
		}
	}
	return s.release(ctx, "backups", b)
}

// cleans reports whether the deletion of an object deletes what the store has, too.
func (s *state) cleans(labels map[string]string) bool {
	_, only := labels[labelOnly]
	return !only && s.target != nil && s.target.Spec.BackupTargetURL != "" && s.target.Status.Available
}

func (s *state) snapshotOf(name string) *snapshot {
	for _, sn := range s.snapshots {
		if sn.Name == name {
			return sn
		}
	}
	return nil
}

// warn writes an event of a volume.
func (s *state) warn(ctx context.Context, v *volume, reason, message string) {
	err := s.w.Warn(ctx, corev1.ObjectReference{APIVersion: apiVersion, Kind: "Volume",
		Namespace: s.namespace, Name: v.Name, UID: v.UID}, "longhorn-volume-controller", reason, message)
	if err != nil {
		s.errs = append(s.errs, cluster.About(v.Name, err))
	}
}
