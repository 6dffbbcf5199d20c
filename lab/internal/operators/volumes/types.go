package volumes

import (
	"context"
	"encoding/json"
	"reflect"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/ephemeral-castle/castle/lab/internal/operators/cluster"
)

const apiVersion = "longhorn.io/v1beta2"

// Resource is one of Longhorn's: "volumes".
func Resource(plural string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "longhorn.io", Version: "v1beta2", Resource: plural}
}

// The fields that Longhorn has and that somebody reads (longhorn-manager, k8s/pkg/apis/longhorn/v1beta2).
type (
	volume struct {
		metav1.TypeMeta   `json:",inline"`
		metav1.ObjectMeta `json:"metadata"`
		Spec              volumeSpec   `json:"spec"`
		Status            volumeStatus `json:"status"`
	}
	volumeSpec struct {
		Size                    string `json:"size"` // of bytes, in decimal digits
		Frontend                string `json:"frontend"`
		DataEngine              string `json:"dataEngine,omitempty"`
		NodeID                  string `json:"nodeID"`
		NumberOfReplicas        int64  `json:"numberOfReplicas"`
		FromBackup              string `json:"fromBackup,omitempty"`
		BackupTargetName        string `json:"backupTargetName,omitempty"`
		BackupCompressionMethod string `json:"backupCompressionMethod,omitempty"`
	}
	volumeStatus struct {
		State            string           `json:"state,omitempty"`
		Robustness       string           `json:"robustness,omitempty"`
		CurrentNodeID    string           `json:"currentNodeID"`
		KubernetesStatus kubernetesStatus `json:"kubernetesStatus"`
		RestoreRequired  bool             `json:"restoreRequired"`
		RestoreInitiated bool             `json:"restoreInitiated"`
		ActualSize       int64            `json:"actualSize"`
		LastBackup       string           `json:"lastBackup"`
		LastBackupAt     string           `json:"lastBackupAt"`
		Conditions       []any            `json:"conditions,omitempty"`
	}
	kubernetesStatus struct {
		Namespace    string `json:"namespace"`
		PVCName      string `json:"pvcName"`
		PVName       string `json:"pvName"`
		PVStatus     string `json:"pvStatus"`
		LastPVCRefAt string `json:"lastPVCRefAt"` // the claim is history since then
	}

	replica struct {
		metav1.TypeMeta   `json:",inline"`
		metav1.ObjectMeta `json:"metadata"`
		Spec              replicaSpec   `json:"spec"`
		Status            replicaStatus `json:"status"`
	}
	replicaSpec struct {
		VolumeName        string `json:"volumeName"`
		NodeID            string `json:"nodeID"`
		DesireState       string `json:"desireState"`
		HealthyAt         string `json:"healthyAt"`
		FailedAt          string `json:"failedAt"`
		EvictionRequested bool   `json:"evictionRequested"`
	}
	replicaStatus struct {
		CurrentState        string `json:"currentState,omitempty"`
		InstanceManagerName string `json:"instanceManagerName"`
	}

	engine struct {
		metav1.TypeMeta   `json:",inline"`
		metav1.ObjectMeta `json:"metadata"`
		Spec              engineSpec   `json:"spec"`
		Status            engineStatus `json:"status"`
	}
	engineSpec struct {
		VolumeName             string `json:"volumeName"`
		NodeID                 string `json:"nodeID"`
		DesireState            string `json:"desireState"`
		BackupVolume           string `json:"backupVolume"`
		RequestedBackupRestore string `json:"requestedBackupRestore"`
	}
	engineStatus struct {
		CurrentState       string                   `json:"currentState,omitempty"`
		LastRestoredBackup string                   `json:"lastRestoredBackup"`
		RestoreStatus      map[string]restoreStatus `json:"restoreStatus,omitempty"` // by replica
	}
	restoreStatus struct {
		IsRestoring            bool   `json:"isRestoring"`
		LastRestored           string `json:"lastRestored"`
		CurrentRestoringBackup string `json:"currentRestoringBackup"`
		Progress               int64  `json:"progress,omitempty"`
		Error                  string `json:"error,omitempty"`
		State                  string `json:"state"`
		BackupURL              string `json:"backupURL"`
	}

	attachment struct {
		metav1.TypeMeta   `json:",inline"`
		metav1.ObjectMeta `json:"metadata"`
		Spec              attachmentSpec `json:"spec"`
	}
	attachmentSpec struct {
		Volume            string            `json:"volume"`
		AttachmentTickets map[string]ticket `json:"attachmentTickets"`
	}
	ticket struct {
		ID     string `json:"id"`
		Type   string `json:"type"`
		NodeID string `json:"nodeID"`
	}

	snapshot struct {
		metav1.TypeMeta   `json:",inline"`
		metav1.ObjectMeta `json:"metadata"`
		Spec              snapshotSpec   `json:"spec"`
		Status            snapshotStatus `json:"status"`
	}
	snapshotSpec struct {
		Volume         string            `json:"volume"`
		CreateSnapshot bool              `json:"createSnapshot"`
		Labels         map[string]string `json:"labels,omitempty"`
	}
	snapshotStatus struct {
		Parent        string            `json:"parent"`
		Children      map[string]bool   `json:"children,omitempty"`
		MarkRemoved   bool              `json:"markRemoved"`
		UserCreated   bool              `json:"userCreated"`
		RequestedTime string            `json:"requestedTime"`
		CreationTime  string            `json:"creationTime"`
		Size          int64             `json:"size"`
		Labels        map[string]string `json:"labels,omitempty"`
		Error         string            `json:"error,omitempty"`
		RestoreSize   int64             `json:"restoreSize"`
		ReadyToUse    bool              `json:"readyToUse"`
	}

	backup struct {
		metav1.TypeMeta   `json:",inline"`
		metav1.ObjectMeta `json:"metadata"`
		Spec              backupSpec   `json:"spec"`
		Status            backupStatus `json:"status"`
	}
	backupSpec struct {
		SyncRequestedAt string            `json:"syncRequestedAt,omitempty"`
		SnapshotName    string            `json:"snapshotName"`
		Labels          map[string]string `json:"labels,omitempty"`
		BackupMode      string            `json:"backupMode,omitempty"`
		BackupBlockSize string            `json:"backupBlockSize,omitempty"`
	}
	backupStatus struct {
		State                  string            `json:"state"`
		Progress               int64             `json:"progress"`
		ReplicaAddress         string            `json:"replicaAddress"`
		Error                  string            `json:"error,omitempty"`
		URL                    string            `json:"url"`
		SnapshotName           string            `json:"snapshotName"`
		SnapshotCreatedAt      string            `json:"snapshotCreatedAt"`
		BackupCreatedAt        string            `json:"backupCreatedAt"`
		Size                   string            `json:"size"`
		Labels                 map[string]string `json:"labels,omitempty"`
		Messages               map[string]string `json:"messages,omitempty"`
		VolumeName             string            `json:"volumeName"`
		VolumeSize             string            `json:"volumeSize"`
		VolumeCreated          string            `json:"volumeCreated"`
		VolumeBackingImageName string            `json:"volumeBackingImageName"`
		LastSyncedAt           string            `json:"lastSyncedAt,omitempty"`
		CompressionMethod      string            `json:"compressionMethod"`
		NewlyUploadedDataSize  string            `json:"newlyUploadDataSize"`
		ReUploadedDataSize     string            `json:"reUploadedDataSize"`
		BackupTargetName       string            `json:"backupTargetName"`
	}

	backupVolume struct {
		metav1.TypeMeta   `json:",inline"`
		metav1.ObjectMeta `json:"metadata"`
		Spec              backupVolumeSpec   `json:"spec"`
		Status            backupVolumeStatus `json:"status"`
	}
	backupVolumeSpec struct {
		BackupTargetName string `json:"backupTargetName"`
		SyncRequestedAt  string `json:"syncRequestedAt,omitempty"`
		VolumeName       string `json:"volumeName"`
	}
	backupVolumeStatus struct {
		LastModificationTime string            `json:"lastModificationTime,omitempty"`
		Size                 string            `json:"size"`
		Labels               map[string]string `json:"labels,omitempty"`
		CreatedAt            string            `json:"createdAt"`
		LastBackupName       string            `json:"lastBackupName"`
		LastBackupAt         string            `json:"lastBackupAt"`
		DataStored           string            `json:"dataStored"`
		StorageClassName     string            `json:"storageClassName"`
		LastSyncedAt         string            `json:"lastSyncedAt,omitempty"`
	}

	backupTarget struct {
		metav1.TypeMeta   `json:",inline"`
		metav1.ObjectMeta `json:"metadata"`
		Spec              backupTargetSpec   `json:"spec"`
		Status            backupTargetStatus `json:"status"`
	}
	backupTargetSpec struct {
		BackupTargetURL  string `json:"backupTargetURL"`
		CredentialSecret string `json:"credentialSecret"`
		PollInterval     string `json:"pollInterval"`
		SyncRequestedAt  string `json:"syncRequestedAt,omitempty"`
	}
	backupTargetStatus struct {
		Available    bool   `json:"available"`
		Conditions   []any  `json:"conditions,omitempty"`
		LastSyncedAt string `json:"lastSyncedAt,omitempty"`
	}
)

// list reads objects as their type.
func list[T any](ctx context.Context, w *cluster.View, plural, namespace string) ([]*T, error) {
	found, err := w.List(ctx, Resource(plural), namespace)
	all := make([]*T, 0, len(found))
	for _, one := range found {
		typed := new(T)
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(one.Object, typed); err != nil {
			return nil, cluster.About(cluster.Titled(&one), err)
		}
		all = append(all, typed)
	}
	return all, err
}

// create makes an object with its status, and completes it.
func create(ctx context.Context, w *cluster.View, plural string, o metav1.Object) error {
	want, err := untyped(o)
	if err != nil {
		return err
	}
	api := w.Untyped.Resource(Resource(plural)).Namespace(want.GetNamespace())
	have, err := api.Create(ctx, want.DeepCopy(), metav1.CreateOptions{})
	if err != nil {
		return cluster.Unless(err, apierrors.IsAlreadyExists)
	}
	if status := want.Object["status"]; status != nil {
		have.Object["status"] = status
		if have, err = api.UpdateStatus(ctx, have, metav1.UpdateOptions{}); err != nil {
			return err
		}
	}
	o.SetUID(have.GetUID())
	o.SetResourceVersion(have.GetResourceVersion())
	return nil
}

// save writes what has changed of an object. Somebody else's change comes first: the next look sees it. What
// the object has beside the fields above stays as it is.
func save[T metav1.Object](ctx context.Context, w *cluster.View, plural string, was, is T) error {
	before, err := untyped(was)
	if err != nil {
		return err
	}
	after, err := untyped(is)
	if err != nil {
		return err
	}
	api := w.Untyped.Resource(Resource(plural)).Namespace(before.GetNamespace())
	passes := func(err error) error {
		return cluster.Unless(err, func(err error) bool {
			return apierrors.IsConflict(err) || apierrors.IsNotFound(err)
		})
	}
	version := before.GetResourceVersion()
	object, status := map[string]any{}, map[string]any{}
	for _, field := range []string{"metadata", "spec", "status"} {
		changed, _ := changes(before.Object[field], after.Object[field]).(map[string]any)
		switch {
		case len(changed) == 0:
		case field == "status":
			status[field] = changed
		default:
			object[field] = changed
		}
	}
	if len(object) > 0 {
		have, err := patch(ctx, api, is.GetName(), version, object)
		if err != nil {
			return passes(err)
		}
		version = have.GetResourceVersion()
	}
	if len(status) > 0 {
		have, err := patch(ctx, api, is.GetName(), version, status, "status")
		if err != nil {
			return passes(err)
		}
		version = have.GetResourceVersion()
	}
	is.SetResourceVersion(version) // for a second change in the same look
	return nil
}

// changes is the merge patch that makes one value another one.
func changes(was, is any) any {
	before, isMap := was.(map[string]any)
	after, stays := is.(map[string]any)
	if !isMap || !stays {
		return is
	}
	changed := map[string]any{}
	for field := range before {
		if _, has := after[field]; !has {
			changed[field] = nil
		}
	}
	for field, value := range after {
		if old, had := before[field]; !had || !reflect.DeepEqual(old, value) {
			changed[field] = changes(old, value)
		}
	}
	return changed
}

// patch changes an object of a version.
func patch(ctx context.Context, api dynamic.ResourceInterface, name, version string, change map[string]any,
	subresource ...string) (*unstructured.Unstructured, error) {
	if version != "" {
		meta, _ := change["metadata"].(map[string]any)
		if meta == nil {
			meta = map[string]any{}
			change["metadata"] = meta
		}
		meta["resourceVersion"] = version
	}
	text, err := json.Marshal(change)
	if err != nil {
		return nil, err
	}
	return api.Patch(ctx, name, types.MergePatchType, text, metav1.PatchOptions{}, subresource...)
}

func untyped(o any) (*unstructured.Unstructured, error) {
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	return &unstructured.Unstructured{Object: fields}, err
}

func remove(ctx context.Context, w *cluster.View, plural, namespace, name string) error {
	return cluster.Unless(w.Untyped.Resource(Resource(plural)).Namespace(namespace).
		Delete(ctx, name, metav1.DeleteOptions{}), apierrors.IsNotFound)
}

func typeOf(kind string) metav1.TypeMeta { return metav1.TypeMeta{Kind: kind, APIVersion: apiVersion} }
