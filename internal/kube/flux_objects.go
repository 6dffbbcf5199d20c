package kube

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

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
		return cmp.Or(ready.why(), "is not ready"), ready.Reason == "DependencyNotReady"
	case reconciling.Status == "True":
		return cmp.Or(reconciling.why(), "is being reconciled"), false
	case !judged, !said, generation != object.GetGeneration():
		return "its last change is not reconciled yet", false
	case ready.Status != "True":
		return cmp.Or(ready.why(), "is not ready"), false
	}
	return "", false
}

// subject is one Kustomization or HelmRelease and what there is to say of it.
type subject struct {
	object      unstructured.Unstructured
	why         string // what it lacks; empty if nothing
	consequence bool   // it only waits for another
	source      verdict
}

// look judges everything that matters, and the sources of it.
func (f *convergence) look(ctx context.Context, a *api) ([]subject, error) {
	appliers, err := f.appliers(ctx, a)
	if err != nil {
		return nil, err
	}
	from := sources{a: a, seen: map[reference]verdict{}}
	var subjects []subject
	for _, object := range appliers {
		s, err := from.subject(ctx, object)
		if err != nil {
			return nil, err
		}
		subjects = append(subjects, s)
	}
	return subjects, nil
}

// subject judges one object and where it comes from. A HelmRelease's chart is
// packed from its source by a HelmChart, which is the revision that it follows.
func (s sources) subject(ctx context.Context, object unstructured.Unstructured) (subject, error) {
	found := subject{object: object}
	found.why, found.consequence = unsettled(&object)
	for _, of := range []func(*unstructured.Unstructured) (reference, bool){sourceOf, chartOf} {
		ref, has := of(&object)
		if !has {
			continue
		}
		source, err := s.judge(ctx, ref)
		if err != nil {
			return subject{}, err
		}
		found.source = source
		if source.why != "" {
			break
		}
	}
	if found.why == "" {
		found.why = behind(&object, found.source)
	}
	return found, nil
}

// behind says whether an object has applied another revision than its source has.
func behind(object *unstructured.Unstructured, source verdict) string {
	applied, wanted := text(object, "status", "lastAppliedRevision"), source.revision
	if object.GetKind() == "HelmRelease" {
		applied = text(object, "status", "lastAttemptedRevision")
		switch source.kind {
		case "HelmChart":
		case "OCIRepository":
			// The chart's version has no tag's name; what both have is the digest.
			applied = text(object, "status", "lastAttemptedRevisionDigest")
			if _, digest, tagged := strings.Cut(wanted, "@"); tagged {
				wanted = digest
			}
			if applied == "" {
				return "" // a Flux that does not note it
			}
		default:
			return ""
		}
	}
	if source.why != "" || wanted == "" || applied == wanted {
		return ""
	}
	return fmt.Sprintf("has applied %s, its source is at %s", cmp.Or(applied, "nothing"), wanted)
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

// chartOf is the HelmChart that Flux has made for a HelmRelease's own chart.
func chartOf(object *unstructured.Unstructured) (reference, bool) {
	namespace, name, made := strings.Cut(text(object, "status", "helmChart"), "/")
	return reference{"HelmChart", namespace, name}, made && object.GetKind() == "HelmRelease"
}

// verdict is what there is to say of a source.
type verdict struct {
	what     string // as messages name it
	kind     string
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
	v.what, v.kind = titled(ref.kind, ref.namespace, ref.name), ref.kind
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
	return verdict{why: why, revision: revision}, nil
}
