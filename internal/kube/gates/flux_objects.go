package gates

import (
	"cmp"
	"context"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/kube/client"
)

// fluxGroups are the groups of the kinds that apply something; sources are in sourceGroup.
var fluxGroups = map[string]string{
	"Kustomization": "kustomize.toolkit.fluxcd.io", "HelmRelease": "helm.toolkit.fluxcd.io",
}

const sourceGroup = "source.toolkit.fluxcd.io"

// FluxObject is one Kustomization or HelmRelease.
type FluxObject struct {
	Object  *client.Object
	Finding *gate.Finding // why it has not reconciled its last change; nil if it has
	Source  FluxSource
	Needs   []*FluxObject // its dependencies; nil for one that does not exist
}

func (o *FluxObject) settled() bool { return o != nil && o.Finding == nil && o.Source.Finding == nil }

// FluxSource is the source of an object; empty if it has none.
type FluxSource struct {
	Object   *client.Object // nil if it does not exist
	Finding  *gate.Finding  // why it has no current artifact; nil if it has
	kind     string
	revision string // of its artifact
}

// readFlux reads the Kustomizations and HelmReleases of all namespaces: a dependency may be anywhere.
func readFlux(ctx context.Context, a *client.API) ([]*FluxObject, error) {
	objects, err := a.ListIn(ctx, fluxGroups["Kustomization"], "Kustomization", "")
	if err != nil {
		return nil, err
	}
	releases, err := a.ListIn(ctx, fluxGroups["HelmRelease"], "HelmRelease", "")
	if err != nil && !client.IsNotServed(err) { // there may be no helm-controller
		return nil, err
	}
	objects = append(objects, releases...)
	var all []*FluxObject
	known := map[client.Reference]*FluxObject{}
	from := sources{a, map[string]sourcesOfKind{}}
	for i := range objects {
		o := &FluxObject{Object: &objects[i], Finding: unsettled(&objects[i])}
		if o.Source, err = from.of(ctx, o.Object); err != nil {
			return nil, err
		}
		if o.Finding == nil {
			o.Finding = behind(o.Object, o.Source)
		}
		all = append(all, o)
		known[client.ReferenceTo(o.Object)] = o
	}
	for _, o := range all {
		needs, _, _ := unstructured.NestedSlice(o.Object.Object, "spec", "dependsOn")
		for _, need := range needs {
			fields, _ := need.(map[string]any)
			name, _ := fields["name"].(string)
			namespace, _ := fields["namespace"].(string)
			o.Needs = append(o.Needs, known[client.Reference{Kind: o.Object.GetKind(),
				Namespace: cmp.Or(namespace, o.Object.GetNamespace()), Name: name}])
		}
	}
	return all, nil
}

// unsettled is the finding why one of Flux' objects has not reconciled its last change; nil if it has.
//
// The conditions come before the generation: Flux leaves observedGeneration at -1 until the first success,
// so that a new object's failure would otherwise hide behind "not reconciled yet".
func unsettled(object *client.Object) *gate.Finding {
	ready, found := client.ConditionOf(object, "Ready")
	stalled, _ := client.ConditionOf(object, "Stalled")
	reconciling, _ := client.ConditionOf(object, "Reconciling")
	generation, observed := client.Observed(object)
	why, kind := "", gate.Kind("")
	switch {
	case object.GetDeletionTimestamp() != nil:
		return terminating(object)
	case client.True(object, "spec", "suspend"):
		why, kind = "is suspended", Suspended
	case stalled.Status == "True":
		why = "stalled: " + stalled.Why()
	case ready.Status == "False" && ready.Reason == "DependencyNotReady":
		why, kind = ready.Why(), Waits
	case ready.Status == "False":
		why = cmp.Or(ready.Why(), "is not ready")
	case reconciling.Status == "True":
		why = cmp.Or(reconciling.Why(), "is being reconciled")
	case !found, !observed, generation != object.GetGeneration():
		why = "its last change is not reconciled yet"
	case ready.Status != "True":
		why = cmp.Or(ready.Why(), "is not ready")
	default:
		return nil
	}
	return problem(kind, client.Title(object), "%s", why)
}

// behind is the finding that an object has applied another revision than its source's.
func behind(object *client.Object, from FluxSource) *gate.Finding {
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
				return nil // a Flux that does not record it
			}
		default:
			return nil
		}
	}
	if from.Finding != nil || wanted == "" || applied == wanted {
		return nil
	}
	return problem("", client.Title(object), "has applied %s, its source is at %s",
		cmp.Or(applied, "nothing"), wanted)
}

// sources reads each kind of source once in an attempt, however many use it.
type sources struct {
	a     *client.API
	kinds map[string]sourcesOfKind
}

type sourcesOfKind struct {
	objects   map[client.Reference]*client.Object
	notServed error
}

// of reads the source of an object. A HelmRelease's chart is packed from its source by a HelmChart, which is
// the revision that it follows.
func (s sources) of(ctx context.Context, object *client.Object) (source FluxSource, err error) {
	for _, path := range [][]string{
		{"spec", "sourceRef"},                  // Kustomization
		{"spec", "chartRef"},                   // HelmRelease of an OCIRepository or HelmChart
		{"spec", "chart", "spec", "sourceRef"}, // HelmRelease with a chart of its own
	} {
		at := func(field string) string {
			return client.Text(object, append(path[:len(path):len(path)], field)...)
		}
		if at("name") != "" {
			source, err = s.get(ctx, client.Reference{Kind: at("kind"),
				Namespace: cmp.Or(at("namespace"), object.GetNamespace()), Name: at("name")})
			break
		}
	}
	namespace, name, packed := strings.Cut(client.Text(object, "status", "helmChart"), "/")
	if packed && object.GetKind() == "HelmRelease" && source.Finding == nil && err == nil {
		return s.get(ctx, client.Reference{Kind: "HelmChart", Namespace: namespace, Name: name})
	}
	return source, err
}

// get finds a source. A HelmRepository of type oci is only an address: it has no status.
func (s sources) get(ctx context.Context, ref client.Reference) (FluxSource, error) {
	known, ok := s.kinds[ref.Kind]
	if !ok {
		objects, err := s.a.ListIn(ctx, sourceGroup, ref.Kind, "")
		if err != nil && !client.IsNotServed(err) {
			return FluxSource{}, err
		}
		known = sourcesOfKind{map[client.Reference]*client.Object{}, err}
		for i := range objects {
			known.objects[client.ReferenceTo(&objects[i])] = &objects[i]
		}
		s.kinds[ref.Kind] = known
	}
	source := FluxSource{Object: known.objects[ref], kind: ref.Kind}
	switch {
	case known.notServed != nil:
		source.Finding = problem("", ref.String(), "%s", known.notServed)
	case source.Object == nil:
		source.Finding = problem(gate.NotFound, ref.String(), "does not exist yet")
	case ref.Kind == "HelmRepository" && client.Text(source.Object, "spec", "type") == "oci":
	default:
		source.Finding = unsettled(source.Object)
		source.revision = client.Text(source.Object, "status", "artifact", "revision")
		if source.Finding == nil && source.revision == "" {
			source.Finding = problem("", ref.String(), "has no artifact yet")
		}
	}
	return source, nil
}
