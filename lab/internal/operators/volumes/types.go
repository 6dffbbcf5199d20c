package volumes

import (
	"context"
	"reflect"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

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
		Size             string `json:"size"` // of bytes, in decimal digits
		Frontend         string `json:"frontend"`
		DataEngine       string `json:"dataEngine"`
		NodeID           string `json:"nodeID"`
		NumberOfReplicas int64  `json:"numberOfReplicas"`
	}
	volumeStatus struct {
		State            string           `json:"state,omitempty"`
		Robustness       string           `json:"robustness,omitempty"`
		CurrentNodeID    string           `json:"currentNodeID"`
		KubernetesStatus kubernetesStatus `json:"kubernetesStatus"`
	}
	kubernetesStatus struct {
		Namespace string `json:"namespace"`
		PVCName   string `json:"pvcName"`
		PVName    string `json:"pvName"`
		PVStatus  string `json:"pvStatus"`
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
		VolumeName  string `json:"volumeName"`
		NodeID      string `json:"nodeID"`
		DesireState string `json:"desireState"`
	}
	engineStatus struct {
		CurrentState string `json:"currentState,omitempty"`
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

// save writes what has changed of an object. Somebody else's change comes first: the next look sees it.
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
	status := after.Object["status"]
	passes := func(err error) error {
		return cluster.Unless(err, func(err error) bool {
			return apierrors.IsConflict(err) || apierrors.IsNotFound(err)
		})
	}
	if !reflect.DeepEqual(before.Object["spec"], after.Object["spec"]) ||
		!reflect.DeepEqual(before.GetAnnotations(), after.GetAnnotations()) {
		if after, err = api.Update(ctx, after, metav1.UpdateOptions{}); err != nil {
			return passes(err)
		}
	}
	if reflect.DeepEqual(before.Object["status"], status) {
		return nil
	}
	after.Object["status"] = status
	_, err = api.UpdateStatus(ctx, after, metav1.UpdateOptions{})
	return passes(err)
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
