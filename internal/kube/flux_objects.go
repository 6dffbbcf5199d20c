package kube

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// unsettled says why one of Flux' objects has not reconciled its last change,
// and whether it merely waits for another. Empty if it has.
//
// The conditions come before the generation: Flux leaves observedGeneration at
// -1 until the first success, so that a new object's failure would otherwise
// hide behind "not reconciled yet".
func unsettled(object *unstructured.Unstructured) (why string, consequence bool) {
	ready, judged := stateOf(object, "Ready")
	stalled, _ := stateOf(object, "Stalled")
	reconciling, _ := stateOf(object, "Reconciling")
	suspended, _, err := unstructured.NestedBool(object.Object, "spec", "suspend")
	generation, said := observed(object)
	switch {
	case object.GetDeletionTimestamp() != nil:
		return "is being deleted", false
	case err == nil && suspended:
		return "is suspended", false
	case stalled.Status == "True":
		return "stalled: " + stalled.why(), false
	case ready.Status == "False":
		return ready.why(), ready.Reason == "DependencyNotReady"
	case reconciling.Status == "True":
		return reconciling.why(), false
	case !judged, !said, generation != object.GetGeneration():
		return "its last change is not reconciled yet", false
	case ready.Status != "True":
		return ready.why(), false
	}
	return "", false
}

// behind says whether a Kustomization has applied another revision than its source has.
func behind(object *unstructured.Unstructured, source verdict) string {
	applied := text(object, "status", "lastAppliedRevision")
	if object.GetKind() != "Kustomization" || source.revision == "" || applied == source.revision {
		return ""
	}
	return fmt.Sprintf("has applied %s, its source is at %s", cmp.Or(applied, "nothing"), source.revision)
}

// reference leads from what applies to where it comes from.
type reference struct{ kind, namespace, name string }

// sourceOf reads the reference of a Kustomization or HelmRelease. It may have
// none that is an object of its own.
func sourceOf(object *unstructured.Unstructured) (reference, bool) {
	for _, path := range [][]string{
		{"spec", "sourceRef"},                  // Kustomization
		{"spec", "chartRef"},                   // HelmRelease of an OCIRepository or HelmChart
		{"spec", "chart", "spec", "sourceRef"}, // HelmRelease with a chart of its own
	} {
		at := func(field string) string { return text(object, append(path[:len(path):len(path)], field)...) }
		if at("name") != "" {
			return reference{at("kind"), cmp.Or(at("namespace"), object.GetNamespace()), at("name")}, true
		}
	}
	return reference{}, false
}

// verdict is what there is to say of a source.
type verdict struct {
	why      string // what it lacks; empty if nothing
	revision string // of its artifact
}

// sources judges each source once in an attempt, however many use it.
type sources struct {
	a    *api
	seen map[reference]verdict
}

func (s sources) judge(ctx context.Context, ref reference) (verdict, error) {
	if v, ok := s.seen[ref]; ok {
		return v, nil
	}
	v, err := s.look(ctx, ref)
	if err == nil {
		s.seen[ref] = v
	}
	return v, err
}

func (s sources) look(ctx context.Context, ref reference) (verdict, error) {
	r, err := s.a.resolveIn(ctx, sourceGroup, ref.kind)
	if absent := (notServed{}); errors.As(err, &absent) {
		return verdict{why: absent.Error()}, nil
	}
	if err != nil {
		return verdict{}, err
	}
	source, err := s.a.get(ctx, r.GroupVersionResource, ref.namespace, ref.name)
	if apierrors.IsNotFound(err) {
		return verdict{why: "does not exist yet"}, nil
	}
	if err != nil {
		return verdict{}, err
	}
	// A HelmRepository of type oci is only an address: no controller gives it a status.
	if ref.kind == "HelmRepository" && text(source, "spec", "type") == "oci" {
		return verdict{}, nil
	}
	why, _ := unsettled(source)
	revision := text(source, "status", "artifact", "revision")
	if why == "" && revision == "" {
		why = "has no artifact yet"
	}
	return verdict{why, revision}, nil
}
