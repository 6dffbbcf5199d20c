package kube

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/ephemeral-castle/castle/internal/gate"
)

// condition explains the objects that a condition gate is about.
func (q *inquiry) condition(ctx context.Context, v gate.Values) {
	w := wanted{
		apiVersion: v.String("api_version"), kind: v.String("kind"),
		namespace: v.String("namespace"), name: v.String("name"), selector: v.String("selector"),
	}
	s, err := w.selection(ctx, q.a)
	if absent := (notServed{}); errors.As(err, &absent) {
		q.unserved(ctx, absent)
		return
	}
	if err != nil {
		q.miss(w.kind, err)
		return
	}
	if s.name == "" {
		q.chosen(ctx, s, w)
		return
	}
	object, sure := q.get(ctx, s, w.kind)
	switch {
	case object != nil:
		q.events(ctx, s.namespace)
		q.because(tells(object))
	case sure:
		q.absent(ctx, w.kind, s.namespace, s.name, unmade)
	}
}

// chosen explains the objects that a selector picks.
func (q *inquiry) chosen(ctx context.Context, s selection, w wanted) {
	objects := q.list(ctx, s, w.kind)
	q.events(ctx, s.namespace)
	for i := range objects {
		q.because(tells(&objects[i]))
	}
	if len(objects) == 0 {
		q.because(fmt.Sprintf("nobody has made a %s%s", strings.ToLower(w.kind), w.where()))
	}
}

// lookAtObjects is the command that shows what a condition gate is about.
func lookAtObjects(v gate.Values) string {
	kind := strings.ToLower(v.String("kind"))
	if group, _, grouped := strings.Cut(v.String("api_version"), "/"); grouped {
		kind += "." + group // two groups may have the kind
	}
	if v.String("name") != "" {
		return describe(kind, v.String("namespace"), v.String("name"))
	}
	command := "kubectl get " + kind + " -o yaml"
	switch {
	case v.String("namespace") != "":
		command += " -n " + v.String("namespace")
	default:
		command += " -A"
	}
	if selector := v.String("selector"); selector != "" {
		command += " -l '" + selector + "'"
	}
	return command
}

// tells is what an object itself says about why it does not go on.
func tells(object *unstructured.Unstructured) string {
	what := title(object)
	suspended, _, err := unstructured.NestedBool(object.Object, "spec", "suspend")
	for _, kind := range []string{"Stalled", "Ready", "Available", "Degraded"} {
		s, found := stateOf(object, kind)
		bad := "False"
		if kind == "Stalled" || kind == "Degraded" {
			bad = "True"
		}
		if found && s.Status == bad && s.why() != "" {
			return fmt.Sprintf("%s says of itself: %s", what, s.why())
		}
	}
	_, looked := object.Object["status"]
	switch {
	case object.GetDeletionTimestamp() != nil:
		return fmt.Sprintf("%s is being deleted and waits for its finalizers: %s", what, strings.Join(object.GetFinalizers(), ", "))
	case err == nil && suspended:
		return what + " is suspended"
	case !looked:
		return fmt.Sprintf("no controller has looked at %s: the operator of its kind is not running, or has not seen it", what)
	}
	return ""
}
