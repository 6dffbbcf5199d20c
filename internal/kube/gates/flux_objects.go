package gates

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/kube/client"
)

// Unsettled explains why one of Flux' objects has not reconciled its last change; empty if it has. waits
// reports whether it only waits for another object.
//
// The conditions come before the generation: Flux leaves observedGeneration at -1 until the first success,
// so that a new object's failure would otherwise hide behind "not reconciled yet".
func Unsettled(object *client.Object) (why string, waits bool) {
	ready, found := client.ConditionOf(object, "Ready")
	stalled, _ := client.ConditionOf(object, "Stalled")
	reconciling, _ := client.ConditionOf(object, "Reconciling")
	generation, observed := client.Observed(object)
	switch {
	case object.GetDeletionTimestamp() != nil:
		return "is being deleted", false
	case client.True(object, "spec", "suspend"):
		return "is suspended", false
	case stalled.Status == "True":
		return "stalled: " + stalled.Why(), false
	case ready.Status == "False":
		return cmp.Or(ready.Why(), "is not ready"), ready.Reason == "DependencyNotReady"
	case reconciling.Status == "True":
		return cmp.Or(reconciling.Why(), "is being reconciled"), false
	case !found, !observed, generation != object.GetGeneration():
		return "its last change is not reconciled yet", false
	case ready.Status != "True":
		return cmp.Or(ready.Why(), "is not ready"), false
	}
	return "", false
}

// fluxObject is one Kustomization or HelmRelease with its source.
type fluxObject struct {
	object client.Object
	why    string // it is not settled; empty if it is
	waits  bool   // only for another one
	source source
}

// objects reads everything that matters, and the sources of it.
func (f *Flux) objects(ctx context.Context, a *client.API) ([]fluxObject, error) {
	appliers, err := f.Appliers(ctx, a)
	if err != nil {
		return nil, err
	}
	from := sources{a, map[Reference]source{}}
	var objects []fluxObject
	for _, object := range appliers {
		o, err := from.object(ctx, object)
		if err != nil {
			return nil, err
		}
		objects = append(objects, o)
	}
	return objects, nil
}

// object checks one object and its source. A HelmRelease's chart is packed from its source by a HelmChart,
// which is the revision that it follows.
func (s sources) object(ctx context.Context, object client.Object) (fluxObject, error) {
	found := fluxObject{object: object}
	found.why, found.waits = Unsettled(&object)
	for _, of := range []func(*client.Object) (Reference, bool){SourceOf, chartOf} {
		ref, has := of(&object)
		if !has {
			continue
		}
		from, err := s.of(ctx, ref)
		if err != nil {
			return fluxObject{}, err
		}
		found.source = from
		if from.why != "" {
			break
		}
	}
	if found.why == "" {
		found.why = behind(&object, found.source)
	}
	return found, nil
}

// behind explains which other revision than its source's an object has applied.
func behind(object *client.Object, from source) string {
	applied, wanted := client.Text(object, "status", "lastAppliedRevision"), from.revision
	if object.GetKind() == "HelmRelease" {
		applied = client.Text(object, "status", "lastAttemptedRevision")
		switch from.kind {
		case "HelmChart":
		case "OCIRepository":
			// The chart's version has no tag's name; both have the digest.
			applied = client.Text(object, "status", "lastAttemptedRevisionDigest")
			if _, digest, tagged := strings.Cut(wanted, "@"); tagged {
				wanted = digest
			}
			if applied == "" {
				return "" // a Flux that does not record it
			}
		default:
			return ""
		}
	}
	if from.why != "" || wanted == "" || applied == wanted {
		return ""
	}
	return fmt.Sprintf("has applied %s, its source is at %s", cmp.Or(applied, "nothing"), wanted)
}

// Reference identifies one of Flux' objects.
type Reference struct{ Kind, Namespace, Name string }

// ReferenceTo is an object's own reference.
func ReferenceTo(o *client.Object) Reference {
	return Reference{o.GetKind(), o.GetNamespace(), o.GetName()}
}

// SourceOf reads the reference of a Kustomization or HelmRelease to its source. It may have none that is an
// object of its own.
func SourceOf(object *client.Object) (Reference, bool) {
	for _, path := range [][]string{
		{"spec", "sourceRef"},                  // Kustomization
		{"spec", "chartRef"},                   // HelmRelease of an OCIRepository or HelmChart
		{"spec", "chart", "spec", "sourceRef"}, // HelmRelease with a chart of its own
	} {
		at := func(field string) string {
			return client.Text(object, append(path[:len(path):len(path)], field)...)
		}
		if at("name") != "" {
			return Reference{at("kind"), cmp.Or(at("namespace"), object.GetNamespace()), at("name")}, true
		}
	}
	return Reference{}, false
}

// chartOf is the HelmChart that Flux has created for a HelmRelease's own chart.
func chartOf(object *client.Object) (Reference, bool) {
	namespace, name, found := strings.Cut(client.Text(object, "status", "helmChart"), "/")
	return Reference{"HelmChart", namespace, name}, found && object.GetKind() == "HelmRelease"
}

// Dependencies are the objects on which one of Flux' objects depends.
func Dependencies(object *client.Object) ([]Reference, error) {
	needs, _, err := unstructured.NestedSlice(object.Object, "spec", "dependsOn")
	if err != nil {
		return nil, fmt.Errorf("its dependsOn is not a list of references: %w", err)
	}
	var all []Reference
	for _, need := range needs {
		fields, _ := need.(map[string]any)
		name, _ := fields["name"].(string)
		namespace, _ := fields["namespace"].(string)
		all = append(all, Reference{object.GetKind(), cmp.Or(namespace, object.GetNamespace()), name})
	}
	return all, nil
}

// source is the state of one source.
type source struct {
	what     string // as messages name it
	kind     string
	why      string // it is not settled; empty if it is
	revision string // of its artifact
}

// sources reads each source once in an attempt, however many use it.
type sources struct {
	a    *client.API
	seen map[Reference]source
}

func (s sources) of(ctx context.Context, ref Reference) (source, error) {
	if known, ok := s.seen[ref]; ok {
		return known, nil
	}
	from := source{what: client.Titled(ref.Kind, ref.Namespace, ref.Name), kind: ref.Kind}
	object, err := GetSource(ctx, s.a, ref)
	switch {
	case client.IsNotServed(err):
		from.why = err.Error()
	case gate.KindOf(err) == gate.NotFound:
		from.why = "does not exist yet"
	case err != nil:
		return source{}, err
	default:
		from.why, from.revision = SourceUnsettled(object)
	}
	s.seen[ref] = from
	return from, nil
}

// GetSource reads a source.
func GetSource(ctx context.Context, a *client.API, ref Reference) (*client.Object, error) {
	return getFlux(ctx, a, sourceGroup, ref)
}

func getFlux(ctx context.Context, a *client.API, group string, ref Reference) (*client.Object,
	error) {
	r, err := a.ResolveIn(ctx, group, ref.Kind)
	if err != nil {
		return nil, err
	}
	return a.Get(ctx, client.Selection{
		Resource: r.GroupVersionResource, Namespace: ref.Namespace, Name: ref.Name,
	}, ref.Kind)
}

// SourceUnsettled explains why a source has no current artifact, and returns the artifact's revision. A
// HelmRepository of type oci is only an address: it has no status.
func SourceUnsettled(object *client.Object) (why, revision string) {
	if object.GetKind() == "HelmRepository" && client.Text(object, "spec", "type") == "oci" {
		return "", ""
	}
	why, _ = Unsettled(object)
	revision = client.Text(object, "status", "artifact", "revision")
	if why == "" && revision == "" {
		why = "has no artifact yet"
	}
	return why, revision
}
