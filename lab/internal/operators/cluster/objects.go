package cluster

import (
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Text returns a string field of an object, or "" if the field is absent or not a string.
func Text(object map[string]any, path ...string) string {
	value, _, err := unstructured.NestedString(object, path...)
	if err != nil {
		return ""
	}
	return value
}

// Nested is an object in an object; nil if there is none.
func Nested(object map[string]any, path ...string) map[string]any {
	for _, name := range path {
		object, _ = object[name].(map[string]any)
	}
	return object
}

// ConditionOf reads a condition's status; empty if there is none.
func ConditionOf(object map[string]any, typ string) string { return OfCondition(object, typ, "status") }

// MessageOf returns the message of a condition.
func MessageOf(object map[string]any, typ string) string { return OfCondition(object, typ, "message") }

// OfCondition reads a field of a condition; empty if there is none.
func OfCondition(object map[string]any, typ, field string) string {
	all, _, err := unstructured.NestedSlice(object, "status", "conditions")
	if err != nil {
		return ""
	}
	for _, one := range all {
		if c, ok := one.(map[string]any); ok && c["type"] == typ {
			return Text(c, field)
		}
	}
	return ""
}

// Whole returns an integer field of an object, or 0 if the field is absent or not an integer.
func Whole(object map[string]any, path ...string) int64 {
	value, _, err := unstructured.NestedInt64(object, path...)
	if err != nil {
		return 0
	}
	return value
}

// Unless takes an error of the given kind for none.
func Unless(err error, is func(error) bool) error {
	if err != nil && is(err) {
		return nil
	}
	return err
}

// About adds the name of the object to an error.
func About(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", what, err)
}

// Titled names an object as Flux does: Namespace/traefik, HelmRelease/traefik/traefik.
func Titled(o *unstructured.Unstructured) string {
	if o.GetNamespace() == "" {
		return o.GetKind() + "/" + o.GetName()
	}
	return o.GetKind() + "/" + o.GetNamespace() + "/" + o.GetName()
}
