package client

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/ephemeral-castle/castle/internal/gate"
)

// Object is an object of any kind.
type Object = unstructured.Unstructured

// Reference identifies an object.
type Reference struct{ Kind, Namespace, Name string }

// String is the object as messages name it: deployment metallb-system/controller.
func (r Reference) String() string { return Titled(r.Kind, r.Namespace, r.Name) }

// ReferenceTo is an object's own reference.
func ReferenceTo(o *Object) Reference { return Reference{o.GetKind(), o.GetNamespace(), o.GetName()} }

// In is a namespace as messages name it; empty for all of them.
func In(namespace string) string {
	if namespace == "" {
		return ""
	}
	return " in namespace " + namespace
}

// ReleaseType selects the Secrets in which Helm 3 and 4 keep the revisions of releases.
const ReleaseType = "type=helm.sh/release.v1"

// Release is what castle reads of a revision of a Helm release.
type Release struct{ Name, Manifest string }

// longestRelease is far more than a Secret of a mebibyte holds.
const longestRelease = 64 << 20

// ReadRelease reads Helm's record of a revision: JSON in base64, compressed unless an early Helm wrote it.
func ReadRelease(data []byte) (r Release, err error) {
	text, err := base64.StdEncoding.AppendDecode(nil, data)
	if err != nil {
		return r, err
	}
	if bytes.HasPrefix(text, []byte("\x1f\x8b\x08")) {
		unpacked, err := gzip.NewReader(bytes.NewReader(text))
		if err != nil {
			return r, err
		}
		if text, err = io.ReadAll(io.LimitReader(unpacked, longestRelease)); err != nil {
			return r, err
		}
	}
	err = json.Unmarshal(text, &r)
	return r, err
}

// Missing is an object that does not exist. It comes inside a gate.Finding of kind NotFound.
type Missing Reference

func (m Missing) Error() string { return Reference(m).String() + " does not exist yet" }

// NotFound is the finding that an object does not exist.
func NotFound(kind, namespace, name string) error {
	return &gate.Finding{Kind: gate.NotFound, Err: Missing{kind, namespace, name}}
}

// Get reads one object; namespace is empty for a cluster-scoped one. An object that does not exist is a
// finding of kind NotFound.
func (a *API) Get(ctx context.Context, in Selection, kind string) (*Object, error) {
	object, err := a.Dynamic.Resource(in.Resource).Namespace(in.Namespace).Get(ctx, in.Name,
		metav1.GetOptions{})
	if err != nil {
		a.Read(in)
		if apierrors.IsNotFound(err) {
			err = NotFound(kind, in.Namespace, in.Name)
		}
		return nil, err
	}
	a.Read(in, *object)
	return object, nil
}

// List reads the objects of a namespace, or of all where it is empty, that the labels select. Lists of some
// APIs leave out the kind of their items.
func (a *API) List(ctx context.Context, in Selection, kind string) ([]Object, error) {
	found, err := a.Dynamic.Resource(in.Resource).Namespace(in.Namespace).
		List(ctx, metav1.ListOptions{LabelSelector: in.Labels})
	if err != nil {
		a.Read(in)
		if apierrors.IsNotFound(err) {
			err = NotServed{kind, in.Resource.GroupVersion().String()} // it was, when it was resolved
		}
		return nil, err
	}
	for i := range found.Items {
		if found.Items[i].GetKind() == "" {
			found.Items[i].SetKind(kind)
		}
	}
	a.Read(in, found.Items...)
	return found.Items, nil
}

// Change merges a patch into an object that it has read, unless somebody has changed the object since.
func (a *API) Change(ctx context.Context, in schema.GroupVersionResource, o *Object, annotations,
	spec map[string]any) error {
	metadata := map[string]any{"resourceVersion": o.GetResourceVersion()}
	change := map[string]any{"metadata": metadata}
	if annotations != nil {
		metadata["annotations"] = annotations
	}
	if spec != nil {
		change["spec"] = spec
	}
	patch, err := json.Marshal(change)
	if err != nil {
		return err
	}
	_, err = a.Dynamic.Resource(in).Namespace(o.GetNamespace()).Patch(ctx, o.GetName(), types.MergePatchType,
		patch, metav1.PatchOptions{})
	return err
}

// Delete deletes an object, if it exists.
func (a *API) Delete(ctx context.Context, in Selection) error {
	err := a.Dynamic.Resource(in.Resource).Namespace(in.Namespace).Delete(ctx, in.Name,
		metav1.DeleteOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// ListIn lists a kind in whichever version of its group the API prefers.
func (a *API) ListIn(ctx context.Context, group, kind, namespace string) ([]Object, error) {
	r, err := a.ResolveIn(ctx, group, kind)
	if err != nil {
		return nil, err
	}
	return a.List(ctx, Selection{Resource: r.GroupVersionResource, Namespace: namespace}, kind)
}

var fromUnstructured = runtime.DefaultUnstructuredConverter.FromUnstructured

// As reads an object as the Go type of its kind.
func As[T any](object Object) (T, error) {
	var typed T
	if err := fromUnstructured(object.Object, &typed); err != nil {
		return typed, fmt.Errorf("%s: %w", Title(&object), err)
	}
	return typed, nil
}

// ListAs lists the objects of a selection as the Go type of their kind.
func ListAs[T any](ctx context.Context, a *API, in Selection, kind string) ([]T, error) {
	items, err := a.List(ctx, in, kind)
	if err != nil {
		return nil, err
	}
	all := make([]T, 0, len(items))
	for _, item := range items {
		typed, err := As[T](item)
		if err != nil {
			return nil, err
		}
		all = append(all, typed)
	}
	return all, nil
}

// Core is a kind of Kubernetes' group v1: "nodes".
func Core(plural string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Version: "v1", Resource: plural}
}

// Title is an object as messages name it.
func Title(object *Object) string { return ReferenceTo(object).String() }

// Titled is Title of an object that is known by its name only.
func Titled(kind, namespace, object string) string {
	if namespace != "" {
		object = namespace + "/" + object
	}
	return strings.ToLower(kind) + " " + object
}

// Condition is one entry of an object's status.conditions.
type Condition struct {
	Type               string `json:"type"`
	Status             string `json:"status"`
	Reason             string `json:"reason"`
	Message            string `json:"message"`
	Since              string `json:"lastTransitionTime"`
	ObservedGeneration int64  `json:"observedGeneration"` // 0 where the controller does not set it
}

// ConditionOf finds a condition by its type; one that is not readable is as good as none.
func ConditionOf(object *Object, kind string) (Condition, bool) {
	conditions, _, _ := unstructured.NestedSlice(object.Object, "status", "conditions")
	for _, entry := range conditions {
		var c Condition
		fields, ok := entry.(map[string]any)
		if ok && fields["type"] == kind && fromUnstructured(fields, &c) == nil {
			return c, true
		}
	}
	return Condition{}, false
}

// Why is a condition's reason and message.
func (c Condition) Why() string {
	switch {
	case c.Reason == "":
		return Brief(c.Message)
	case c.Message == "":
		return c.Reason
	}
	return c.Reason + ": " + Brief(c.Message)
}

// Observed is the generation that the object's controller has last acted on.
func Observed(object *Object) (generation int64, found bool) {
	generation, found, _ = unstructured.NestedInt64(object.Object, "status", "observedGeneration")
	return generation, found
}

// Text reads a string deep in an object; one that is missing, or no string, is empty.
func Text(object *Object, path ...string) string {
	found, _, _ := unstructured.NestedString(object.Object, path...)
	return found
}

// Number reads a whole number deep in an object, or returns otherwise.
func Number(object *Object, otherwise int64, path ...string) int64 {
	if found, ok, _ := unstructured.NestedInt64(object.Object, path...); ok {
		return found
	}
	return otherwise
}

// True reads a boolean deep in an object; one that is missing is false.
func True(object *Object, path ...string) bool {
	found, _, _ := unstructured.NestedBool(object.Object, path...)
	return found
}
