package kube

import (
	"context"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// get reads one object; namespace is empty for one of the cluster's own.
func (a *api) get(ctx context.Context, in schema.GroupVersionResource, namespace, name string) (*unstructured.Unstructured, error) {
	return a.dynamic.Resource(in).Namespace(namespace).Get(ctx, name, metav1.GetOptions{})
}

// list reads the objects of a namespace, or of all where it is empty, that the
// label selector picks.
func (a *api) list(ctx context.Context, in schema.GroupVersionResource, namespace, selector string) ([]unstructured.Unstructured, error) {
	found, err := a.dynamic.Resource(in).Namespace(namespace).List(ctx, metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		return nil, err
	}
	return found.Items, nil
}

// as reads an object as the Go type of its kind.
func as[T any](object unstructured.Unstructured) (T, error) {
	var typed T
	err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &typed)
	if err != nil {
		return typed, fmt.Errorf("%s: %w", title(&object), err)
	}
	return typed, nil
}

// title is an object as messages name it: deployment metallb-system/controller.
func title(object *unstructured.Unstructured) string {
	return titled(object.GetKind(), object.GetNamespace(), object.GetName())
}

func titled(kind, namespace, object string) string {
	if namespace != "" {
		object = namespace + "/" + object
	}
	return strings.ToLower(kind) + " " + object
}

// state is one entry of an object's status.conditions.
type state struct {
	Type, Status, Reason, Message string
	ObservedGeneration            int64 // 0 where the controller does not say
}

// stateOf finds a condition by its type.
func stateOf(object *unstructured.Unstructured, kind string) (state, bool) {
	status, _, err := unstructured.NestedSlice(object.Object, "status", "conditions")
	if err != nil {
		return state{}, false
	}
	for _, entry := range status {
		fields, ok := entry.(map[string]any)
		if !ok || fields["type"] != kind {
			continue
		}
		s := state{Type: kind}
		s.Status, _ = fields["status"].(string)
		s.Reason, _ = fields["reason"].(string)
		s.Message, _ = fields["message"].(string)
		s.ObservedGeneration, _ = fields["observedGeneration"].(int64)
		return s, true
	}
	return state{}, false
}

// why is a condition's reason and message.
func (s state) why() string {
	switch {
	case s.Reason == "":
		return brief(s.Message)
	case s.Message == "":
		return s.Reason
	}
	return s.Reason + ": " + brief(s.Message)
}

// observed is the generation that the object's controller has last acted on.
func observed(object *unstructured.Unstructured) (generation int64, said bool) {
	generation, said, err := unstructured.NestedInt64(object.Object, "status", "observedGeneration")
	return generation, said && err == nil
}

// text reads a string deep in an object; what is not there is empty.
func text(object *unstructured.Unstructured, path ...string) string {
	found, _, err := unstructured.NestedString(object.Object, path...)
	if err != nil {
		return ""
	}
	return found
}

// number reads a whole number deep in an object; what is not there is otherwise.
func number(object *unstructured.Unstructured, otherwise int64, path ...string) int64 {
	found, ok, err := unstructured.NestedInt64(object.Object, path...)
	if err != nil || !ok {
		return otherwise
	}
	return found
}
