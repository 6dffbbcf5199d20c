package longhorn

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/ephemeral-castle/castle/internal/foreign"
	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/kube/client"
	"github.com/ephemeral-castle/castle/internal/survivor"
)

const (
	group         = "longhorn.io"
	version       = group + "/v1beta2"
	defaultTarget = "default" // the name of the BackupTarget that Helm's values configure
	detached      = "detached"
)

// Labels and annotations of castle's.
const (
	ofData  = "castle.ephemeral/data"  // of a Snapshot, and in a Backup: the label of the block
	ofBirth = "castle.ephemeral/birth" // of a PersistentVolume: the birth that saves it
	ofSave  = "castle.ephemeral/save"  // of a restored Volume and its PersistentVolume: the save
)

// The fields of Longhorn's objects that castle reads (longhorn-manager, k8s/pkg/apis/longhorn/v1beta2).
type (
	backupTarget struct {
		Metadata metav1.ObjectMeta `json:"metadata"`
		Spec     struct {
			URL             string      `json:"backupTargetURL"`
			SyncRequestedAt metav1.Time `json:"syncRequestedAt"`
		} `json:"spec"`
		Status struct {
			Available    bool               `json:"available"`
			Conditions   []client.Condition `json:"conditions"`
			LastSyncedAt metav1.Time        `json:"lastSyncedAt"`
		} `json:"status"`
	}
	volume struct {
		Metadata metav1.ObjectMeta `json:"metadata"`
		Spec     struct {
			Size         string `json:"size"`
			Replicas     int64  `json:"numberOfReplicas"`
			Engine       string `json:"dataEngine"`
			Encrypted    bool   `json:"encrypted"`
			BackingImage string `json:"backingImage"`
		} `json:"spec"`
		Status struct {
			State            string             `json:"state"`
			Robustness       string             `json:"robustness"`
			RestoreInitiated bool               `json:"restoreInitiated"`
			RestoreRequired  bool               `json:"restoreRequired"`
			Conditions       []client.Condition `json:"conditions"`
		} `json:"status"`
	}
	backup struct {
		Metadata metav1.ObjectMeta `json:"metadata"`
		Status   struct {
			State      string            `json:"state"`
			Progress   int64             `json:"progress"`
			Error      string            `json:"error"`
			URL        string            `json:"url"`
			VolumeName string            `json:"volumeName"`
			Labels     map[string]string `json:"labels"`
		} `json:"status"`
	}
	node struct {
		Spec struct {
			AllowScheduling bool `json:"allowScheduling"`
		} `json:"spec"`
		Status struct {
			Conditions []client.Condition `json:"conditions"`
		} `json:"status"`
	}
)

// list lists Longhorn's objects of a kind.
func list[T any](ctx context.Context, a *client.API, kind string) (all []T, err error) {
	objects, err := a.ListIn(ctx, group, kind, "")
	for _, object := range objects {
		one, err := client.As[T](object)
		if err != nil {
			return nil, err
		}
		all = append(all, one)
	}
	return all, err
}

// listVolumes lists Longhorn's volumes by their names.
func (v *volumes) listVolumes(ctx context.Context, a *client.API) (map[string]volume, error) {
	all, err := list[volume](ctx, a, "Volume")
	by := map[string]volume{}
	for _, one := range all {
		by[one.Metadata.Name] = one
	}
	return by, err
}

// reach returns Longhorn's default backup target, if that is the block's and available.
func (v *volumes) reach(ctx context.Context, a *client.API) (t backupTarget, err error) {
	all, err := list[backupTarget](ctx, a, "BackupTarget")
	if err != nil {
		return t, err
	}
	for _, t = range all {
		if t.Metadata.Name != defaultTarget {
			continue
		}
		object := "backuptarget " + t.Metadata.Namespace + "/" + defaultTarget
		if is := strings.TrimRight(t.Spec.URL, "/"); is != v.url {
			return t, gate.Permanent(fmt.Errorf("%s is %q, and not that of the survives block: set "+
				"longhorn_backup_target of the stage storage/longhorn to %q", object, t.Spec.URL, v.url+"/"))
		}
		if t.Status.Available {
			return t, nil
		}
		why := "Longhorn has not reached it yet"
		for _, c := range t.Status.Conditions {
			if c.Type == "Unavailable" && c.Status == "True" {
				why = c.Why()
			}
		}
		return t, &gate.Finding{Kind: gate.Waits, Object: object, Text: "is not available: " + why}
	}
	return t, &gate.Finding{Kind: gate.Waits, Object: "Longhorn", Text: "has no backuptarget " +
		defaultTarget + " yet"}
}

// ensure returns an object, and creates it if there is none.
func ensure(ctx context.Context, a *client.API, in schema.GroupVersionResource, wanted map[string]any) (
	*client.Object, error) {
	o := &client.Object{Object: wanted}
	is, err := a.Get(ctx, client.Selection{Resource: in, Namespace: o.GetNamespace(), Name: o.GetName()},
		o.GetKind())
	if gate.KindOf(err) != gate.NotFound {
		return is, err
	}
	return a.Dynamic.Resource(in).Namespace(o.GetNamespace()).Create(ctx, o, metav1.CreateOptions{})
}

// longhorn is ensure for a kind of Longhorn's.
func longhorn(ctx context.Context, a *client.API, kind string, metadata, spec map[string]any) (
	*client.Object, error) {
	in, err := a.Resolve(ctx, version, kind)
	if err != nil {
		return nil, err
	}
	return ensure(ctx, a, in.GroupVersionResource, map[string]any{"apiVersion": version, "kind": kind,
		"metadata": metadata, "spec": spec})
}

// get reads an object of Longhorn's; nil if there is none.
func get[T any](ctx context.Context, a *client.API, kind, namespace, name string) (*T, error) {
	in, err := a.Resolve(ctx, version, kind)
	if err != nil {
		return nil, err
	}
	o, err := a.Get(ctx, client.Selection{Resource: in.GroupVersionResource, Namespace: namespace,
		Name: name}, kind)
	if gate.KindOf(err) == gate.NotFound {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	one, err := client.As[T](*o)
	return &one, err
}

// backUp brings a backup of a volume nearer to its end, which it returns: a Snapshot, and the upload of that.
func (v *volumes) backUp(ctx context.Context, a *client.API, t backupTarget, label, of, name string) (
	*backup, error) {
	b, err := get[backup](ctx, a, "Backup", t.Metadata.Namespace, name)
	if err != nil {
		return nil, err
	}
	if b == nil {
		s, err := longhorn(ctx, a, "Snapshot", map[string]any{"namespace": t.Metadata.Namespace, "name": name,
			"labels": map[string]any{ofData: label}}, map[string]any{"volume": of, "createSnapshot": true})
		if err != nil {
			return nil, err
		}
		// Longhorn may call one not ready again, once its volume is detached.
		if !client.True(s, "status", "readyToUse") && client.Text(s, "status", "creationTime") == "" {
			return nil, &gate.Finding{Kind: gate.Waits, Object: "volume " + of, Text: strings.TrimSuffix(
				"its snapshot is not taken yet: "+client.Text(s, "status", "error"), ": ")}
		}
		if _, err := longhorn(ctx, a, "Backup", map[string]any{"namespace": t.Metadata.Namespace,
			"name": name, "labels": map[string]any{"backup-target": defaultTarget, "backup-volume": of,
				ofData: label}}, map[string]any{"snapshotName": name, "backupMode": "incremental",
			"labels": map[string]any{ofData: label}}); err != nil {
			return nil, err
		}
		b = &backup{}
	}
	switch b.Status.State {
	case "Completed":
		return b, nil
	case "Error", "Unknown", "Deleting":
		return nil, gate.Permanent(fmt.Errorf("backup %s of volume %s: %s: %s", name, of, b.Status.State,
			foreign.OneLine(b.Status.Error)))
	}
	return nil, &gate.Finding{Kind: gate.Waits, Object: "volume " + of,
		Text: fmt.Sprintf("%d %% of its backup are uploaded", b.Status.Progress)}
}

// known returns a backup that an earlier cluster has made, once Longhorn has found it in its target.
func (v *volumes) known(ctx context.Context, a *client.API, t backupTarget, s survivor.Volume) (
	*backup, error) {
	b, err := get[backup](ctx, a, "Backup", t.Metadata.Namespace, s.Backup)
	if err != nil || b != nil && b.Status.State == "Completed" && b.Status.URL != "" {
		if err == nil && b.Status.VolumeName != s.Name {
			err = gate.Permanent(fmt.Errorf("backup %s is one of volume %s, and not of %s", s.Backup,
				foreign.OneLine(b.Status.VolumeName), s.Name))
		}
		return b, err
	}
	asked, synced := t.Spec.SyncRequestedAt.Time, t.Status.LastSyncedAt.Time
	if b == nil && !asked.After(synced) && time.Since(asked) > syncPause {
		in, err := a.Resolve(ctx, version, "BackupTarget")
		if err != nil {
			return nil, err
		}
		o := &client.Object{Object: map[string]any{}}
		o.SetName(defaultTarget)
		o.SetNamespace(t.Metadata.Namespace)
		o.SetResourceVersion(t.Metadata.ResourceVersion)
		now := time.Now().UTC().Format(time.RFC3339)
		err = a.Change(ctx, in.GroupVersionResource, o, nil, map[string]any{"syncRequestedAt": now})
		if err != nil {
			return nil, err
		}
	}
	return nil, &gate.Finding{Kind: gate.Waits, Object: "backup " + s.Backup,
		Text: "is not known to Longhorn yet, which reads its backup target"}
}

// syncPause is the least time between two requests to read the backup target.
const syncPause = 30 * time.Second

// restored brings the restore of a volume nearer to its end: its state is then that before its first use.
func (v *volumes) restored(ctx context.Context, a *client.API, t backupTarget, save, proof string,
	s survivor.Volume) error {
	is, err := get[volume](ctx, a, "Volume", t.Metadata.Namespace, s.Name)
	if err != nil {
		return err
	}
	if is == nil {
		from, err := v.known(ctx, a, t, s)
		if err != nil {
			return err
		}
		replicas, err := v.replicas(ctx, a, s.Replicas)
		if err != nil {
			return err
		}
		_, err = longhorn(ctx, a, "Volume", map[string]any{"namespace": t.Metadata.Namespace, "name": s.Name,
			"annotations": map[string]any{ofSave: save}}, map[string]any{"fromBackup": from.Status.URL,
			"size": strconv.FormatInt(s.Bytes, 10), "numberOfReplicas": replicas, "frontend": "blockdev",
			"dataEngine": "v1", "backupTargetName": defaultTarget})
		if err != nil {
			return err
		}
		is = &volume{}
	} else if is.Metadata.Annotations[ofSave] != save {
		return gate.Permanent(fmt.Errorf("volume %s (claim %s/%s) exists already, and was not restored from "+
			"save %s: delete it in Longhorn if its data are not needed", s.Name, s.Namespace, s.PVC, save))
	}
	for _, c := range is.Status.Conditions {
		if c.Type == "Restore" && c.Reason == "RestoreFailure" {
			return gate.Permanent(fmt.Errorf("volume %s (claim %s/%s): the restore failed: %s", s.Name,
				s.Namespace, s.PVC, foreign.OneLine(c.Why())))
		}
	}
	if is.Status.Robustness == "faulted" {
		return fmt.Errorf("volume %s (claim %s/%s) is faulted", s.Name, s.Namespace, s.PVC)
	}
	waits := !is.Status.RestoreInitiated || is.Status.RestoreRequired
	if !waits && is.Status.State != detached { // its engine still restores, unless the proof has attached it
		snapshot, err := get[client.Object](ctx, a, "Snapshot", t.Metadata.Namespace, proof)
		if err != nil {
			return err
		}
		waits = snapshot == nil
	}
	if waits {
		return &gate.Finding{Kind: gate.Waits, Object: "volume " + s.Name, Text: fmt.Sprintf("(claim %s/%s) "+
			"is being restored", s.Namespace, s.PVC)}
	}
	return nil
}

// replicas is how many replicas a volume can have, at most those that it had.
func (v *volumes) replicas(ctx context.Context, a *client.API, had int64) (int64, error) {
	nodes, err := list[node](ctx, a, "Node")
	fit := int64(0)
	for _, n := range nodes {
		for _, c := range n.Status.Conditions {
			if c.Type == "Schedulable" && c.Status == "True" && n.Spec.AllowScheduling {
				fit++
			}
		}
	}
	return max(1, min(had, fit)), err
}

// prune deletes the Snapshots of the block but those with these names, on which the next backup builds, and
// its Backups but those that a save names. It deletes nothing that castle has not made.
func (v *volumes) prune(ctx context.Context, a *client.API, label string, last, kept map[string]bool) error {
	var errs []error
	remove := func(kind string, o client.Object) {
		in, err := a.Resolve(ctx, version, kind)
		if err == nil {
			err = a.Delete(ctx, client.Selection{Resource: in.GroupVersionResource,
				Namespace: o.GetNamespace(), Name: o.GetName()})
		}
		errs = append(errs, err)
	}
	snapshots, err := a.ListIn(ctx, group, "Snapshot", "")
	errs = append(errs, err)
	for _, o := range snapshots {
		if o.GetLabels()[ofData] == label && names.MatchString(o.GetName()) && !last[o.GetName()] {
			remove("Snapshot", o)
		}
	}
	backups, err := a.ListIn(ctx, group, "Backup", "")
	errs = append(errs, err)
	for _, o := range backups {
		// Of an earlier cluster's, Longhorn knows only what is in its target.
		ours := o.GetLabels()[ofData] == label || client.Text(&o, "status", "labels", ofData) == label
		if ours && names.MatchString(o.GetName()) && !kept[o.GetName()] {
			remove("Backup", o)
		}
	}
	return errors.Join(errs...)
}
