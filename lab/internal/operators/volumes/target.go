package volumes

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/ephemeral-castle/castle/lab/internal/backupstore"
	"github.com/ephemeral-castle/castle/lab/internal/operators/cluster"
)

const (
	// defaultTarget is the only backup target that the lab knows.
	defaultTarget    = "default"
	defaultResource  = "longhorn-default-resource"
	defaultInterval  = 300 * time.Second
	engineBinaryPath = "/var/lib/longhorn/engine-binaries/longhornio-longhorn-engine/longhorn"
)

// configure makes the backup target of the chart's values, and follows them (datastore/longhorn.go,
// CreateOrUpdateDefaultBackupTarget).
func (s *state) configure(ctx context.Context, applied *string) error {
	text, _, err := s.w.Offered(ctx, "ConfigMap", s.namespace, defaultResource)
	if err != nil || s.target != nil && *applied == text["default-resource.yaml"] {
		return err
	}
	values := map[string]string{}
	if err := yaml.Unmarshal([]byte(text["default-resource.yaml"]), &values); err != nil {
		return cluster.About(defaultResource, err)
	}
	interval := defaultInterval
	if seconds := values["backupstore-poll-interval"]; seconds != "" {
		n, err := strconv.ParseInt(seconds, 10, 64)
		if err != nil {
			return cluster.About(defaultResource, err)
		}
		interval = time.Duration(n) * time.Second
	}
	t := s.target
	if t == nil {
		t = &backupTarget{TypeMeta: typeOf("BackupTarget"),
			ObjectMeta: metav1.ObjectMeta{Name: defaultTarget, Namespace: s.namespace}}
		t.Spec.PollInterval = interval.String()
	}
	was := *t
	if url, has := values["backup-target"]; has {
		t.Spec.BackupTargetURL = url
	}
	if secret, has := values["backup-target-credential-secret"]; has {
		t.Spec.CredentialSecret = secret
	}
	if _, has := values["backupstore-poll-interval"]; has {
		t.Spec.PollInterval = interval.String()
	}
	if s.target == nil {
		err = create(ctx, s.w, "backuptargets", t)
	} else if was.Spec != t.Spec {
		t.Spec.SyncRequestedAt = s.now()
		err = save(ctx, s.w, "backuptargets", &was, t)
	}
	if err == nil {
		*applied = text["default-resource.yaml"]
	}
	return err
}

// opener reads the Secret of the target, and returns what connects with its store. One of NFS has no Secret,
// and the lab has no store for it.
func (s *state) opener(ctx context.Context) (func(context.Context) (*backupstore.Store, error), error) {
	if o := (backupstore.Options{URL: s.target.Spec.BackupTargetURL}); strings.HasPrefix(o.URL, "nfs:") {
		return func(ctx context.Context) (*backupstore.Store, error) { return backupstore.Open(ctx, o) }, nil
	}
	if s.target.Spec.CredentialSecret == "" {
		return nil, errors.New("could not access s3 without credential secret")
	}
	secret, there, err := s.w.Offered(ctx, "Secret", s.namespace, s.target.Spec.CredentialSecret)
	if err == nil && !there {
		err = apierrors.NewNotFound(corev1.Resource("secrets"), s.target.Spec.CredentialSecret)
	}
	o := backupstore.Options{URL: s.target.Spec.BackupTargetURL, Credentials: secret, Speed: s.w.Speed()}
	return func(ctx context.Context) (*backupstore.Store, error) { return backupstore.Open(ctx, o) }, err
}

// syncTarget finds out whether the store is available, and which volumes have backups there
// (backup_target_controller.go). A target that becomes available is synchronised with the next look.
func (s *state) syncTarget(ctx context.Context) error {
	t := s.target
	if t == nil {
		return nil
	}
	was := *t
	interval, err := time.ParseDuration(t.Spec.PollInterval)
	switch {
	case err != nil || interval == 0 || t.Spec.BackupTargetURL == "":
		s.w.Restart("backup poll")
	case s.w.Passed("backup poll", interval):
		s.w.Restart("backup poll")
		s.w.Passed("backup poll", interval)
		t.Spec.SyncRequestedAt = s.now()
	}
	if t.Spec.BackupTargetURL == "" {
		t.Status.Available, t.Status.LastSyncedAt = false, ""
		s.unavailable("True", "Unavailable", "backup target URL is empty")
		return errors.Join(
			save(ctx, s.w, "backuptargets", &was, t),
			s.dropVolumes(ctx, func(string) bool { return true }),
		)
	}
	if requested(t.Spec.SyncRequestedAt, t.Status.LastSyncedAt) {
		err = s.listTarget(ctx)
	}
	return errors.Join(err, save(ctx, s.w, "backuptargets", &was, t))
}

func (s *state) listTarget(ctx context.Context) error {
	t := s.target
	open, err := s.opener(ctx)
	if err != nil { // Longhorn logs it, and leaves the status as it is
		return fmt.Errorf(
			"failed to init backup target clients: failed to get %v backup target client: %w",
			t.Name,
			err,
		)
	}
	found, err, ended := s.ask(
		"target "+t.Spec.BackupTargetURL,
		func(ctx context.Context, _ *task) (any, error) {
			store, err := open(ctx)
			if err != nil {
				return nil, err
			}
			return store.Volumes(ctx)
		},
	)
	if !ended {
		return nil
	}
	if err != nil {
		url := t.Spec.BackupTargetURL
		if !strings.HasPrefix(
			err.Error(),
			"could not backup to",
		) { // that is seen before the engine's program runs
			err = fmt.Errorf(
				"failed to execute: %v [system-backup list %v], output %w\n, stderr level=error "+
					"msg=%q: exit status 1",
				engineBinaryPath,
				url,
				err,
				err.Error(),
			)
		}
		t.Status.Available = false
		s.unavailable(
			"True",
			"Unavailable",
			fmt.Sprintf("failed to list system backups in %v: error listing system "+
				"backup in %v: %v", url, url, err),
		)
		return nil
	}
	if !t.Status.Available {
		t.Status.Available = true
		s.unavailable("False", "", "")
		return nil
	}
	now := s.now()
	stored := map[string]bool{}
	names, _ := found.([]string)
	var errs []error
	for _, volume := range names {
		if !backupstore.ValidName(volume) {
			continue
		}
		stored[volume] = true
		of := s.backupVolumeOf(volume)
		if of == nil {
			errs = append(errs, s.pull(ctx, volume))
			continue
		}
		was := *of
		of.Spec.SyncRequestedAt = now
		errs = append(errs, save(ctx, s.w, "backupvolumes", &was, of))
	}
	errs = append(errs, s.dropVolumes(ctx, func(volume string) bool { return !stored[volume] }))
	t.Status.LastSyncedAt = now
	return errors.Join(errs...)
}

func (s *state) unavailable(value, reason, message string) {
	status := map[string]any{"conditions": s.target.Status.Conditions}
	s.w.SetCondition(status, "Unavailable", value, reason, message, 0)
	s.target.Status.Conditions, _ = status["conditions"].([]any)
}

// pull makes the object of a volume that has backups in the store.
func (s *state) pull(ctx context.Context, volume string) error {
	sum := sha256.Sum256([]byte(volume + "-" + s.target.Name))
	return create(ctx, s.w, "backupvolumes", &backupVolume{TypeMeta: typeOf("BackupVolume"),
		ObjectMeta: metav1.ObjectMeta{
			Name:      volume + "-" + hex.EncodeToString(sum[:])[:8],
			Namespace: s.namespace,
			Labels:    map[string]string{labelTarget: s.target.Name, labelVolume: volume},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: apiVersion, Kind: "BackupTarget",
				Name: s.target.Name, UID: s.target.UID}},
		},
		Spec: backupVolumeSpec{BackupTargetName: s.target.Name, VolumeName: volume}})
}

// dropVolumes deletes the objects of volumes that have left the store, and nothing in it.
func (s *state) dropVolumes(ctx context.Context, gone func(volume string) bool) error {
	var errs []error
	for _, of := range s.backupVolumes {
		if gone(of.Spec.VolumeName) && of.DeletionTimestamp == nil {
			errs = append(errs, s.deleteOnly(ctx, "backupvolumes", of.Name))
		}
	}
	return errors.Join(errs...)
}

// deleteOnly deletes an object, and leaves the store as it is.
func (s *state) deleteOnly(ctx context.Context, plural, name string) error {
	api := s.w.Untyped.Resource(Resource(plural)).Namespace(s.namespace)
	if _, err := patch(ctx, api, name, "", map[string]any{"metadata": map[string]any{
		"labels": map[string]any{labelOnly: ""}}}); err != nil {
		return cluster.Unless(err, apierrors.IsNotFound)
	}
	return remove(ctx, s.w, plural, s.namespace, name)
}

// syncVolumeOf has the backups of a volume read again.
func (s *state) syncVolumeOf(ctx context.Context, volume string) error {
	if of := s.backupVolumeOf(volume); of != nil {
		was := *of
		of.Spec.SyncRequestedAt = s.now()
		return save(ctx, s.w, "backupvolumes", &was, of)
	}
	was := *s.target
	s.target.Spec.SyncRequestedAt = s.now()
	return save(ctx, s.w, "backuptargets", &was, s.target)
}

func (s *state) backupVolumeOf(volume string) *backupVolume {
	for _, of := range s.backupVolumes {
		if of.Spec.VolumeName == volume {
			return of
		}
	}
	return nil
}

// listed is what the store has of a volume.
type listed struct {
	volume  *backupstore.Volume
	at      time.Time
	backups map[string]*backupstore.Backup // those that no object stands for have their contents
}

// backupVolume keeps the backups of a volume, and their objects, as the store has them
// (backup_volume_controller.go). Its deletion deletes all backups of the volume in the store.
func (s *state) backupVolume(ctx context.Context, of *backupVolume) error {
	volume := of.Spec.VolumeName
	open, err := s.opener(ctx)
	if of.DeletionTimestamp != nil {
		if s.cleans(of.Labels) {
			if err != nil {
				return err
			}
			_, err, ended := s.ask("delete volume "+volume, func(ctx context.Context, _ *task) (any, error) {
				store, err := open(ctx)
				if err != nil {
					return nil, err
				}
				return nil, store.DeleteVolume(ctx, volume)
			})
			if err != nil || !ended {
				return err
			}
		}
		return s.release(ctx, "backupvolumes", of)
	}
	if err != nil || !requested(of.Spec.SyncRequestedAt, of.Status.LastSyncedAt) {
		return err
	}
	known := map[string]*backup{}
	for _, b := range s.backups {
		own := b.Spec.SnapshotName != "" && b.Status.State != "Completed"
		if b.Labels[labelVolume] == volume && !own {
			known[b.Name] = b
		}
	}
	found, err, ended := s.ask("volume "+volume, func(ctx context.Context, _ *task) (any, error) {
		store, err := open(ctx)
		if err != nil {
			return nil, err
		}
		return listVolume(ctx, store, volume, known)
	})
	is, _ := found.(*listed)
	if err != nil || !ended {
		return err
	}
	return s.apply(ctx, of, is, known)
}

func listVolume(
	ctx context.Context,
	store *backupstore.Store,
	volume string,
	known map[string]*backup,
) (*listed, error) {
	is := &listed{backups: map[string]*backupstore.Backup{}}
	names, err := store.Backups(ctx, volume)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		is.backups[name] = nil
		if known[name] == nil {
			if b, err := store.Backup(ctx, volume, name); err == nil {
				is.backups[name] = b
			}
		}
	}
	is.volume, is.at, err = store.Volume(ctx, volume)
	return is, err
}

// apply makes and deletes the objects of backups, and reports the volume.
func (s *state) apply(ctx context.Context, of *backupVolume, is *listed, known map[string]*backup) error {
	var errs []error
	owner := []metav1.OwnerReference{
		{APIVersion: apiVersion, Kind: "BackupVolume", Name: of.Name, UID: of.UID},
	}
	for name, b := range is.backups {
		if known[name] != nil {
			continue
		}
		pulled := &backup{
			TypeMeta: typeOf("Backup"),
			ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: s.namespace,
				Labels: map[string]string{
					labelTarget: s.target.Name,
					labelVolume: of.Spec.VolumeName,
				},
				OwnerReferences: owner},
			Spec: backupSpec{Labels: map[string]string{}, BackupBlockSize: "-1"},
		}
		if b != nil {
			if mode, has := b.Labels[labelAccessMode]; has {
				pulled.Spec.Labels[labelAccessMode] = mode
			}
			pulled.Spec.BackupBlockSize = cmp.Or(b.Parameters[backupstore.ParameterBlockSize],
				strconv.FormatInt(blockSize, 10))
		}
		errs = append(errs, create(ctx, s.w, "backups", pulled))
	}
	for name, b := range known {
		if _, there := is.backups[name]; !there && b.DeletionTimestamp == nil {
			errs = append(errs, s.deleteOnly(ctx, "backups", name))
		}
	}
	was := *of
	if last := known[is.volume.LastBackupName]; last != nil && of.Status.LastBackupName != last.Name {
		wasLast := *last
		last.Spec.SyncRequestedAt = s.now()
		if len(last.OwnerReferences) == 0 {
			last.OwnerReferences = owner
		}
		errs = append(errs, save(ctx, s.w, "backups", &wasLast, last))
	}
	of.Status = backupVolumeStatus{LastModificationTime: is.at.UTC().Format(time.RFC3339),
		Size: strconv.FormatInt(
			is.volume.Size,
			10,
		), Labels: is.volume.Labels, CreatedAt: is.volume.CreatedTime,
		LastBackupName: is.volume.LastBackupName, LastBackupAt: is.volume.LastBackupAt,
		DataStored: strconv.FormatInt(is.volume.BlockCount*blockSize, 10), LastSyncedAt: s.now(),
		StorageClassName: is.volume.StorageClassName}
	return errors.Join(append(errs, save(ctx, s.w, "backupvolumes", &was, of))...)
}
