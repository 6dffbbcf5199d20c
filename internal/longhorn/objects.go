package longhorn

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/siderolabs/gen/xslices"
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
	faulted       = "faulted"
)

// Labels and annotations of castle's.
const (
	ofData  = "castle.ephemeral/data"  // of a Snapshot, and in a Backup: the label of the block
	ofBirth = "castle.ephemeral/birth" // of a PersistentVolume: the birth that saves it
	ofSave  = "castle.ephemeral/save"  // of a restored Volume and its PersistentVolume: the save
)

// listVolumes lists Longhorn's volumes by their names.
func listVolumes(ctx context.Context, a *client.API) (map[string]client.Object, error) {
	all, err := a.ListIn(ctx, group, "Volume", "")
	by := xslices.ToMap(all, func(o client.Object) (string, client.Object) { return o.GetName(), o })
	return by, err
}

// reach returns Longhorn's default backup target, if that is the block's and available.
func (v *volumes) reach(ctx context.Context, a *client.API) (*client.Object, error) {
	all, err := a.ListIn(ctx, group, "BackupTarget", "")
	if err != nil {
		return nil, err
	}
	for _, t := range all {
		if t.GetName() != defaultTarget {
			continue
		}
		if is := client.Text(&t, "spec", "backupTargetURL"); strings.TrimRight(is, "/") != v.url {
			return nil, gate.Permanent(fmt.Errorf("%s is %q, and not that of the survives block: set "+
				"longhorn_backup_target of the stage storage/longhorn to %q", client.Title(&t), is,
				v.url+"/"))
		}
		if client.True(&t, "status", "available") {
			return &t, nil
		}
		why := "Longhorn has not reached it yet"
		if c, has := client.ConditionOf(&t, "Unavailable"); has && c.Status == "True" {
			why = c.Why()
		}
		return nil, waits(client.Title(&t), "is not available: "+why)
	}
	return nil, waits("Longhorn", "has no backuptarget "+defaultTarget+" yet")
}

func waits(object, text string) error {
	return &gate.Finding{Kind: gate.Waits, Object: object, Text: text}
}

// ensure returns an object, and creates it as wanted if there is none.
func ensure(ctx context.Context, a *client.API, in schema.GroupVersionResource, wanted any) (
	*client.Object, error) {
	o := &client.Object{}
	text, err := json.Marshal(wanted)
	if err == nil {
		err = o.UnmarshalJSON(text)
	}
	if err != nil {
		return nil, err
	}
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
func get(ctx context.Context, a *client.API, kind, namespace, name string) (*client.Object, error) {
	in, err := a.Resolve(ctx, version, kind)
	if err != nil {
		return nil, err
	}
	o, err := a.Get(ctx, client.Selection{Resource: in.GroupVersionResource, Namespace: namespace,
		Name: name}, kind)
	if gate.KindOf(err) == gate.NotFound {
		return nil, nil
	}
	return o, err
}

// backUp brings a backup of a volume nearer to its end: a Snapshot, and the upload of that.
func (v *volumes) backUp(ctx context.Context, a *client.API, system, label, of, name string) error {
	b, err := begin(ctx, a, system, label, of, name)
	if err != nil {
		return err
	}
	switch state := client.Text(b, "status", "state"); state {
	case "Completed":
		return nil
	case "Error", "Unknown", "Deleting":
		return gate.Permanent(fmt.Errorf("backup %s of volume %s: %s: %s", name, of, state,
			foreign.OneLine(client.Text(b, "status", "error"))))
	}
	return waits("volume "+of, fmt.Sprintf("%d %% of its backup are uploaded",
		client.Number(b, 0, "status", "progress")))
}

// full ends the name of a backup that writes all blocks of its volume, those that the bucket had included.
const full = "-full"

// begin makes the Snapshot of a backup, and the Backup once that is taken.
func begin(ctx context.Context, a *client.API, system, label, of, name string) (*client.Object, error) {
	s, err := longhorn(ctx, a, "Snapshot", map[string]any{"namespace": system, "name": name,
		"labels": map[string]any{ofData: label}}, map[string]any{"volume": of, "createSnapshot": true})
	if err != nil {
		return nil, err
	}
	// Longhorn may call one not ready again, once its volume is detached.
	if !client.True(s, "status", "readyToUse") && client.Text(s, "status", "creationTime") == "" {
		return nil, waits("volume "+of, strings.TrimSuffix("its snapshot is not taken yet: "+
			foreign.OneLine(client.Text(s, "status", "error")), ": "))
	}
	mode := "incremental"
	if strings.HasSuffix(name, full) {
		mode = "full"
	}
	return longhorn(ctx, a, "Backup", map[string]any{"namespace": system, "name": name,
		"labels": map[string]any{"backup-target": defaultTarget, "backup-volume": of, ofData: label}},
		map[string]any{"snapshotName": name, "backupMode": mode, "labels": map[string]any{ofData: label}})
}

// known returns the URL of a backup of an earlier cluster, once Longhorn has found it in its target.
func (v *volumes) known(ctx context.Context, a *client.API, t *client.Object, s survivor.Volume) (
	string, error) {
	b, err := get(ctx, a, "Backup", t.GetNamespace(), s.Backup)
	if err != nil {
		return "", err
	}
	if b != nil && client.Text(b, "status", "state") == "Completed" {
		if of := client.Text(b, "status", "volumeName"); of != s.Name {
			return "", gate.Permanent(fmt.Errorf("backup %s is one of volume %s, and not of %s", s.Backup,
				foreign.OneLine(of), s.Name))
		}
		if url := client.Text(b, "status", "url"); url != "" {
			return url, nil
		}
	}
	asked, _ := time.Parse(time.RFC3339, client.Text(t, "spec", "syncRequestedAt")) //nolint:errcheck // never
	if b == nil && time.Since(asked) > syncPause {
		in, err := a.Resolve(ctx, version, "BackupTarget")
		if err == nil {
			err = a.Change(ctx, in.GroupVersionResource, t, nil,
				map[string]any{"syncRequestedAt": time.Now().UTC().Format(time.RFC3339)})
		}
		if err != nil {
			return "", err
		}
	}
	return "", waits("backup "+s.Backup, "is not known to Longhorn yet, which reads its backup target")
}

// syncPause is the least time between two requests to read the backup target.
const syncPause = time.Minute

// restored brings the restore of a volume nearer to its end: its state is then that before its first use.
func (v *volumes) restored(ctx context.Context, a *client.API, t *client.Object, save, proof string,
	s survivor.Volume) error {
	is, err := get(ctx, a, "Volume", t.GetNamespace(), s.Name)
	if err != nil {
		return err
	}
	title := fmt.Sprintf("volume %s (claim %s/%s)", s.Name, s.Namespace, s.PVC)
	if is == nil {
		from, err := v.known(ctx, a, t, s)
		if err != nil {
			return err
		}
		if is, err = longhorn(ctx, a, "Volume", map[string]any{"namespace": t.GetNamespace(), "name": s.Name,
			"annotations": map[string]any{ofSave: save}}, map[string]any{"fromBackup": from,
			"size": strconv.FormatInt(s.Bytes, 10), "numberOfReplicas": s.Replicas, "frontend": "blockdev",
			"dataEngine": "v1", "backupTargetName": defaultTarget}); err != nil {
			return err
		}
	}
	if is.GetAnnotations()[ofSave] != save {
		return gate.Permanent(fmt.Errorf("%s exists already, and was not restored from save %s: delete it "+
			"in Longhorn if its data are not needed", title, save))
	}
	if c, has := client.ConditionOf(is, "Restore"); has && c.Reason == "RestoreFailure" {
		return gate.Permanent(fmt.Errorf("%s: the restore failed: %s", title, foreign.OneLine(c.Why())))
	}
	if client.Text(is, "status", "robustness") == faulted {
		return errors.New(title + " is faulted: it has no usable replica")
	}
	done := client.True(is, "status", "restoreInitiated") && !client.True(is, "status", "restoreRequired")
	if done && client.Text(is, "status", "state") != detached { // by the restore, or by its proof
		snapshot, err := get(ctx, a, "Snapshot", t.GetNamespace(), proof)
		if err != nil {
			return err
		}
		done = snapshot != nil
	}
	if !done {
		return waits(title, "is being restored")
	}
	return nil
}

// prune deletes castle's own Snapshots and Backups of the block, but those with these names.
func (v *volumes) prune(ctx context.Context, a *client.API, label string, last, kept map[string]bool) error {
	var errs []error
	for kind, stays := range map[string]map[string]bool{"Snapshot": last, "Backup": kept} {
		in, err := a.Resolve(ctx, version, kind)
		if err != nil {
			return err
		}
		all, err := a.List(ctx, client.Selection{Resource: in.GroupVersionResource}, kind)
		errs = append(errs, err)
		for _, o := range all {
			// Of an earlier cluster's backup, Longhorn knows only the labels that are in its target.
			ours := o.GetLabels()[ofData] == label || client.Text(&o, "status", "labels", ofData) == label
			if ours && names.MatchString(o.GetName()) && !stays[o.GetName()] {
				errs = append(errs, a.Delete(ctx, client.Selection{Resource: in.GroupVersionResource,
					Namespace: o.GetNamespace(), Name: o.GetName()}))
			}
		}
	}
	return errors.Join(errs...)
}
