package volumes

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/ephemeral-castle/castle/lab/internal/backupstore"
	"github.com/ephemeral-castle/castle/lab/internal/operators/cluster"
)

// Invalid returns Longhorn's form of a rejection, which has a reason other than "forbidden".
func Invalid(format string, args ...any) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure,
		Message: fmt.Sprintf(format, args...), Reason: metav1.StatusReasonInvalid,
		Code: http.StatusUnprocessableEntity}}
}

// finalized are the resources of this package whose objects get the finalizer.
func finalized() []string {
	return []string{"volumes", "snapshots", "backups", "backupvolumes", "backuptargets"}
}

// Mutate returns a JSON patch with what Longhorn fills in (webhook/resources/*/mutator.go).
func (v *Volumes) Mutate(ctx context.Context, r *admissionv1.AdmissionRequest) ([]byte, error) {
	if !slices.Contains(finalized(), r.Resource.Resource) || r.Operation == admissionv1.Delete {
		return nil, nil
	}
	var was unstructured.Unstructured
	if err := utiljson.Unmarshal(r.Object.Raw, &was.Object); err != nil {
		return nil, err
	}
	is := was.DeepCopy()
	if is.GetDeletionTimestamp() == nil && !slices.Contains(is.GetFinalizers(), finalizer) {
		is.SetFinalizers(append(is.GetFinalizers(), finalizer))
	}
	if spec, _ := is.Object["spec"].(map[string]any); spec == nil {
		is.Object["spec"] = map[string]any{}
	}
	if r.Operation == admissionv1.Create {
		fill := map[string]func(context.Context, string, *unstructured.Unstructured) error{
			"volumes": v.fillVolume, "snapshots": v.fillSnapshot,
			"backups": v.fillBackup}[r.Resource.Resource]
		if fill != nil {
			if err := fill(ctx, r.Namespace, is); err != nil {
				return nil, err
			}
		}
	}
	var patch []map[string]any
	for _, path := range [][]string{{"metadata", "finalizers"}, {"metadata", "labels"},
		{"metadata", "ownerReferences"}, {"spec"}} {
		old, _, _ := unstructured.NestedFieldNoCopy(was.Object, path...) //nolint:errcheck // then it differs
		value, has, err := unstructured.NestedFieldNoCopy(is.Object, path...)
		if err != nil {
			return nil, err
		}
		if has && !reflect.DeepEqual(old, value) {
			patch = append(
				patch,
				map[string]any{"op": "add", "path": "/" + strings.Join(path, "/"), "value": value},
			)
		}
	}
	if patch == nil {
		return nil, nil
	}
	return json.Marshal(patch)
}

// get reads one of Longhorn's objects; the error is Longhorn's.
func (v *Volumes) get(
	ctx context.Context,
	plural, namespace, name string,
) (*unstructured.Unstructured, error) {
	return v.w.Untyped.Resource(Resource(plural)).Namespace(namespace).Get(ctx, name, metav1.GetOptions{})
}

// def sets fields of a spec that are empty.
func def(o *unstructured.Unstructured, values map[string]any) {
	spec := cluster.Nested(o.Object, "spec")
	for field, value := range values {
		switch spec[field] {
		case nil, "", int64(0):
			spec[field] = value
		}
	}
}

func label(o *unstructured.Unstructured, values map[string]string) {
	labels := o.GetLabels()
	if labels == nil {
		labels = map[string]string{}
	}
	for key, value := range values {
		labels[key] = value
	}
	o.SetLabels(labels)
}

func (v *Volumes) fillVolume(ctx context.Context, namespace string, o *unstructured.Unstructured) error {
	def(
		o,
		map[string]any{
			"numberOfReplicas":            int64(3),
			"dataLocality":                "disabled",
			"replicaAutoBalance":          "ignored",
			"snapshotDataIntegrity":       "ignored",
			"restoreVolumeRecurringJob":   "ignored",
			"unmapMarkSnapChainRemoved":   "ignored",
			"replicaSoftAntiAffinity":     "ignored",
			"replicaZoneSoftAntiAffinity": "ignored",
			"replicaDiskSoftAntiAffinity": "ignored",
			"dataEngine":                  "v1",
			"freezeFilesystemForSnapshot": "ignored",
			"offlineRebuilding":           "ignored",
			"backupCompressionMethod":     backupstore.Compression,
			"backupBlockSize":             strconv.FormatInt(blockSize, 10),
			"snapshotMaxCount":            int64(250),
		},
	)
	spec := cluster.Nested(o.Object, "spec")
	labels := map[string]string{"longhornvolume": o.GetName()}
	mode, size, target := "rwo", cluster.Text(spec, "size"), cluster.Text(spec, "backupTargetName")
	if from := cluster.Text(spec, "fromBackup"); from != "" {
		name, volume, err := backupstore.DecodeURL(from)
		if err != nil {
			return Invalid("cannot get backup and volume name from backup URL %v: %v", from, err)
		}
		b, err := v.get(ctx, "backups", namespace, name)
		if err != nil {
			if cluster.Text(spec, "accessMode") == "" {
				return Invalid("failed to get backup %v: %v", name, err)
			}
			return Invalid("cannot get backup %s: %v", name, err)
		}
		if has := cluster.Text(cluster.Nested(b.Object, "status", "labels"), labelAccessMode); has != "" {
			mode = has
		}
		target = cluster.Text(b.Object, "status", "backupTargetName")
		of, err := v.backupVolumeOf(ctx, namespace, target, volume)
		if err != nil {
			return Invalid(
				"cannot get backup volume for backup target %s and volume %s: %v",
				target,
				volume,
				err,
			)
		}
		if size = cluster.Text(of.Object, "status", "size"); size == "" {
			size = cluster.Text(b.Object, "status", "volumeSize")
		}
		labels[labelVolume] = volume
	}
	if target == "" {
		target = defaultTarget
	}
	labels[labelTarget], spec["backupTargetName"] = target, target
	bytes, err := strconv.ParseInt(size, 10, 64)
	if size != "" && err != nil {
		return Invalid("get invalid size for volume %v: %v", size, err)
	}
	spec["size"] = strconv.FormatInt((bytes+blockSize-1)/blockSize*blockSize, 10)
	def(o, map[string]any{"accessMode": mode, "image": v.image(ctx, namespace)})
	label(o, labels)
	return nil
}

// image is the engine's.
func (v *Volumes) image(ctx context.Context, namespace string) string {
	all, err := v.w.List(ctx, Resource("engineimages"), namespace)
	if err != nil || len(all) == 0 {
		return "longhornio/longhorn-engine"
	}
	return cluster.Text(all[0].Object, "spec", "image")
}

func (v *Volumes) backupVolumeOf(ctx context.Context, namespace, target, volume string) (
	*unstructured.Unstructured, error) {
	all, err := v.w.List(ctx, Resource("backupvolumes"), namespace)
	for _, of := range all {
		if of.GetLabels()[labelTarget] == target && cluster.Text(of.Object, "spec", "volumeName") == volume {
			return &of, nil
		}
	}
	if err == nil {
		err = apierrors.NewNotFound(Resource("backupvolumes").GroupResource(), "")
	}
	return nil, err
}

func (v *Volumes) fillSnapshot(ctx context.Context, namespace string, o *unstructured.Unstructured) error {
	name := cluster.Text(o.Object, "spec", "volume")
	of, err := v.get(ctx, "volumes", namespace, name)
	if err != nil {
		return Invalid("failed to get volume %v: %v", name, err)
	}
	label(o, map[string]string{"longhornvolume": name})
	if len(o.GetOwnerReferences()) == 0 {
		o.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: apiVersion, Kind: "Volume", Name: name,
			UID: of.GetUID()}})
	}
	return nil
}

func (v *Volumes) fillBackup(ctx context.Context, namespace string, o *unstructured.Unstructured) error {
	spec, labels := cluster.Nested(o.Object, "spec"), o.GetLabels()
	name, sn := labels[labelVolume], cluster.Text(spec, "snapshotName")
	if name == "" {
		if sn == "" {
			return Invalid("cannot find the backup volume label for backup %v", o.GetName())
		}
		taken, err := v.get(ctx, "snapshots", namespace, sn)
		if err != nil {
			return fmt.Errorf("failed to get the snapshot %v: %w", sn, err)
		}
		name = cluster.Text(taken.Object, "spec", "volume")
	}
	of, err := v.get(ctx, "volumes", namespace, name)
	if err != nil && (sn != "" || labels[labelTarget] == "") {
		return Invalid(
			"failed to get backup block size from the volume %v of backup %v: %v",
			name,
			o.GetName(),
			err,
		)
	}
	own, _ := spec["labels"].(map[string]any)
	if own == nil {
		own = map[string]any{}
	}
	mode, target := "rwo", labels[labelTarget]
	if err == nil {
		if has := cluster.Text(of.Object, "spec", "accessMode"); has != "" {
			mode = has
		}
		if target == "" {
			target = cluster.Text(of.Object, "spec", "backupTargetName")
		}
		if sn != "" {
			spec["backupBlockSize"] = cluster.Text(of.Object, "spec", "backupBlockSize")
		}
	}
	if own[labelAccessMode] == nil {
		own[labelAccessMode] = mode
	}
	spec["labels"] = own
	def(o, map[string]any{"backupMode": "incremental"})
	label(o, map[string]string{labelVolume: name, labelTarget: target})
	return nil
}

// Validate refuses what Longhorn refuses (webhook/resources/*/validator.go).
func (v *Volumes) Validate(ctx context.Context, r *admissionv1.AdmissionRequest) error {
	if r.Resource.Resource == "backuptargets" && r.Operation == admissionv1.Delete &&
		r.Name == defaultTarget {
		var o unstructured.Unstructured
		if err := utiljson.Unmarshal(r.OldObject.Raw, &o.Object); err != nil {
			return err
		}
		const byUninstall = "longhorn.io/delete-backup-target-from-longhorn"
		if _, uninstalls := o.GetAnnotations()[byUninstall]; !uninstalls {
			return Invalid("deleting default backup target is not allowed")
		}
	}
	if !slices.Contains(finalized(), r.Resource.Resource) || r.Operation == admissionv1.Delete {
		return nil
	}
	var o, old unstructured.Unstructured
	if err := utiljson.Unmarshal(r.Object.Raw, &o.Object); err != nil {
		return err
	}
	if r.Operation == admissionv1.Update {
		if err := utiljson.Unmarshal(r.OldObject.Raw, &old.Object); err != nil {
			return err
		}
	}
	creates := r.Operation == admissionv1.Create
	switch r.Resource.Resource {
	case "backuptargets":
		return reviewTarget(&o)
	case "snapshots":
		volume := cluster.Text(o.Object, "spec", "volume")
		switch {
		case creates && volume == "":
			return Invalid("spec.volume is required")
		case !creates && volume != cluster.Text(old.Object, "spec", "volume"):
			return Invalid("spec.volume field is immutable")
		}
	case "volumes":
		if creates {
			return v.reviewVolume(ctx, r.Namespace, &o)
		}
	case "backups":
		if creates {
			return v.reviewBackup(ctx, r.Namespace, &o)
		}
	}
	return nil
}

func reviewTarget(o *unstructured.Unstructured) error {
	text := cluster.Text(o.Object, "spec", "backupTargetURL")
	u, err := url.Parse(text)
	if err != nil {
		return Invalid("failed to parse %v as url: %v", text, err)
	}
	if strings.ContainsAny(u.Path, "$,") {
		return Invalid("url %s, contains %v", text, "$ or ,")
	}
	return nil
}

func (v *Volumes) reviewVolume(ctx context.Context, namespace string, o *unstructured.Unstructured) error {
	text := func(field string) string { return cluster.Text(o.Object, "spec", field) }
	copies := cluster.Whole(o.Object, "spec", "numberOfReplicas")
	switch frontend := text("frontend"); {
	case !backupstore.ValidName(o.GetName()):
		return Invalid("invalid name %v", o.GetName())
	case copies < 1 || copies > 20:
		return Invalid("invalid number of replicas, it should be between 1 and 20")
	case frontend != "blockdev" && frontend != "iscsi":
		return Invalid(
			"invalid volume frontend specified: %v for data engine %v ",
			frontend,
			text("dataEngine"),
		)
	case text("size") == "0":
		return Invalid("BUG: missing required field %+v", o.Object)
	}
	if _, err := v.get(ctx, "backuptargets", namespace, text("backupTargetName")); err != nil {
		return Invalid("failed to get backup target %v: %v", text("backupTargetName"), err)
	}
	return nil
}

func (v *Volumes) reviewBackup(ctx context.Context, namespace string, o *unstructured.Unstructured) error {
	labels, mode := o.GetLabels(), cluster.Text(o.Object, "spec", "backupMode")
	target, sn := labels[labelTarget], cluster.Text(o.Object, "spec", "snapshotName")
	switch {
	case !backupstore.ValidName(o.GetName()):
		return Invalid("invalid name %v", o.GetName())
	case mode != "full" && mode != "incremental":
		return Invalid("BackupMode %v is not a valid option", mode)
	case target == "":
		return Invalid("missing backup target label on backup object")
	}
	at, err := v.get(ctx, "backuptargets", namespace, target)
	if err != nil {
		return Invalid("failed to get backup target %s: %v", target, err)
	}
	available, _ := cluster.Nested(at.Object, "status")["available"].(bool)
	if !available || cluster.Text(at.Object, "spec", "backupTargetURL") == "" {
		return Invalid("backup target %s is not available", target)
	}
	if sn == "" {
		return nil
	}
	taken, err := v.get(ctx, "snapshots", namespace, sn)
	if err != nil {
		return Invalid("snapshot %v is invalid", sn)
	}
	of, err := v.get(ctx, "volumes", namespace, cluster.Text(taken.Object, "spec", "volume"))
	switch {
	case err != nil:
		return Invalid("volume %v is invalid", sn)
	case labels[labelVolume] != of.GetName():
		return Invalid("snapshot volume name %s and label volume name %s does not match", of.GetName(),
			labels[labelVolume])
	case cluster.Text(of.Object, "spec", "backupTargetName") != target:
		return Invalid("volume backup target %s and label backup target %s does not match",
			cluster.Text(of.Object, "spec", "backupTargetName"), target)
	}
	return nil
}
