package gates

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/zclconf/go-cty/cty"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/kube/client"
)

// flux checks that the cluster matches its repository. Every Kustomization and HelmRelease has reconciled its
// last change, from sources with an artifact, and none is behind its source. A root may add others at any
// time, so the gate belongs with a stable above 1. An attempt that sees others than the last is closed.
func flux() definition {
	return definition{gate.Type{
		Name:    "flux",
		Summary: "every Flux Kustomization and HelmRelease is reconciled from its source's revision",
		Attributes: map[string]gate.Attribute{
			"namespace": named("the objects' namespace; default all"),
			"names": {Type: cty.List(cty.String), Valid: validEach(1, validName),
				Help: "the only Kustomizations that matter, without HelmReleases; default all of both"},
		},
		New: func(name string, target gate.Target, v gate.Values) (gate.Gate, error) {
			f, err := NewFlux(v)
			if err != nil {
				return gate.Gate{}, err
			}
			c := client.New(target, "")
			g := c.Gate(name, f.check)
			g.TriggerReconcile, g.Convergence = once(c, f.requestReconcile), once(c, Convergence)
			return g, nil
		},
	}, func(v gate.Values) (Check, error) {
		f, err := NewFlux(v)
		return f.check, err
	}}
}

// once makes one attempt of a function that has a result.
func once[T any](c *client.Cluster, do func(context.Context, *client.API) (T, error)) func(context.Context) (
	T, error) {
	return func(ctx context.Context) (result T, err error) {
		err = c.Check(func(ctx context.Context, a *client.API) error {
			result, err = do(ctx, a)
			return err
		})(ctx)
		return result, err
	}
}

// Flux is a flux gate's arguments and the objects of its last attempt.
type Flux struct {
	namespace string
	names     []string
	seen      []string
}

// NewFlux reads the arguments.
func NewFlux(v gate.Values) (*Flux, error) {
	f := &Flux{namespace: v.String("namespace")}
	if err := v.Decode("names", &f.names); err != nil {
		return nil, fmt.Errorf("names: %w", err)
	}
	return f, nil
}

// check is closed by an object or source that is not settled, or by other objects than before.
func (f *Flux) check(ctx context.Context, a *client.API) error {
	objects, err := f.objects(ctx, a, f.namespace)
	if err != nil {
		return err
	}
	var closed []*gate.Finding
	var now, changed []string
	for _, o := range objects {
		closed = append(append(closed, o.Source.Finding, o.Finding), o.awaits...)
		now = append(now, client.Title(o.Object))
	}
	before := f.seen
	f.seen = now
	if err := together(closed); err != nil || before == nil {
		return err
	}
	for _, what := range now {
		if !slices.Contains(before, what) {
			changed = append(changed, what+": added since the attempt before")
		}
	}
	for _, what := range before {
		if !slices.Contains(now, what) {
			changed = append(changed, what+": removed since the attempt before")
		}
	}
	if len(changed) > 0 {
		return errors.New(client.Several(changed))
	}
	return nil
}

// Objects reads the Kustomizations and HelmReleases that matter. Their dependencies may be in any namespace.
func (f *Flux) Objects(ctx context.Context, a *client.API) ([]*FluxObject, error) {
	return f.objects(ctx, a, "")
}

// objects knows only the dependencies in a namespace.
func (f *Flux) objects(ctx context.Context, a *client.API, namespace string) ([]*FluxObject, error) {
	all, err := readFlux(ctx, a, namespace)
	if err != nil {
		return nil, err
	}
	var found []*FluxObject
	missing := slices.Clone(f.names)
	kustomizations := 0
	for _, o := range all {
		kind, name := o.Object.GetKind(), o.Object.GetName()
		wanted := len(f.names) == 0 || kind == "Kustomization" && slices.Contains(f.names, name)
		if !wanted || f.namespace != "" && o.Object.GetNamespace() != f.namespace {
			continue
		}
		found = append(found, o)
		missing = slices.DeleteFunc(missing, func(one string) bool { return one == name })
		if kind == "Kustomization" {
			kustomizations++
		}
	}
	switch {
	case len(missing) > 0:
		return nil, fmt.Errorf("no Kustomization %s exists yet%s", strings.Join(missing, ", "),
			client.In(f.namespace))
	case kustomizations == 0:
		return nil, errors.New("no Kustomization exists yet" + client.In(f.namespace))
	}
	return found, nil
}

const (
	// requestedAt asks Flux' controllers to reconcile an object now.
	requestedAt = "reconcile.fluxcd.io/requestedAt"
	// again is the least time between two requests for one object.
	again = 30 * time.Second
)

// requestReconcile asks for a reconcile of the objects that are idle. A Kustomization retries after a pause
// when a dependency or source was not ready, and after a failure maybe minutes later, or on request at once.
func (f *Flux) requestReconcile(ctx context.Context, a *client.API) (string, error) {
	now := time.Now()
	objects, err := f.Objects(ctx, a)
	if err != nil {
		return "", err
	}
	var (
		requested []string
		errs      []error
	)
	for _, o := range objects {
		blocked := o.Source.Finding != nil ||
			slices.ContainsFunc(o.Needs, func(need *FluxObject) bool { return !need.settled() })
		if o.Finding == nil || blocked || !isIdle(o.Object) || requestedLately(o.Object, now) {
			continue
		}
		if err := annotate(ctx, a, o.Object, now); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", client.Title(o.Object), err))
			continue
		}
		requested = append(requested, client.Title(o.Object))
	}
	if len(requested) == 0 {
		return "", errors.Join(errs...)
	}
	return "requested a reconcile of objects that are not ready although their dependencies are: " +
		strings.Join(requested, ", "), errors.Join(errs...)
}

// isIdle reports whether a controller has seen an object and works on it no more. An object that is
// suspended or stalled until it changes is not idle.
func isIdle(object *client.Object) bool {
	ready, found := client.ConditionOf(object, "Ready")
	stalled, _ := client.ConditionOf(object, "Stalled")
	return found && ready.Status != "Unknown" && stalled.Status != "True" &&
		!client.True(object, "spec", "suspend") && object.GetDeletionTimestamp() == nil
}

// requestedLately reads the requests of any castle or person, so that two gates do not request twice.
func requestedLately(object *client.Object, now time.Time) bool {
	last, err := time.Parse(time.RFC3339Nano, object.GetAnnotations()[requestedAt])
	return err == nil && now.Sub(last).Abs() < again
}

func annotate(ctx context.Context, a *client.API, object *client.Object, now time.Time) error {
	r, err := a.ResolveIn(ctx, fluxGroups[object.GetKind()], object.GetKind())
	if err != nil {
		return err
	}
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, requestedAt,
		now.UTC().Format(time.RFC3339Nano))
	_, err = a.Dynamic.Resource(r.GroupVersionResource).Namespace(object.GetNamespace()).
		Patch(ctx, object.GetName(), types.MergePatchType, patch, metav1.PatchOptions{FieldManager: "castle"})
	return err
}

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
	awaits  []*gate.Finding
}

func (o *FluxObject) settled() bool { return o != nil && o.Finding == nil && o.Source.Finding == nil }

// FluxSource is the source of an object; empty if it has none.
type FluxSource struct {
	Object   *client.Object // nil if it does not exist
	Finding  *gate.Finding  // why it has no current artifact; nil if it has
	revision string         // of its artifact
}

// readFlux reads the Kustomizations and HelmReleases of a namespace, or of all where it is empty.
func readFlux(ctx context.Context, a *client.API, namespace string) ([]*FluxObject, error) {
	objects, err := a.ListIn(ctx, fluxGroups["Kustomization"], "Kustomization", namespace)
	if err != nil {
		return nil, err
	}
	releases, err := a.ListIn(ctx, fluxGroups["HelmRelease"], "HelmRelease", namespace)
	if err != nil && !client.IsNotServed(err) { // there may be no helm-controller
		return nil, err
	}
	objects = append(objects, releases...)
	var all []*FluxObject
	known := map[client.Reference]*FluxObject{}
	from := sources{a, map[string][]client.Object{}}
	for i := range objects {
		o := &FluxObject{Object: &objects[i], Finding: unsettled(&objects[i])}
		if o.Source, err = from.of(ctx, o.Object); err != nil {
			return nil, err
		}
		if o.Finding == nil {
			o.Finding = behind(o.Object, o.Source)
		} else if o.awaits, err = from.awaited(ctx, o.Object); err != nil {
			return nil, err
		}
		all = append(all, o)
		known[client.ReferenceTo(o.Object)] = o
	}
	for _, o := range all {
		// The schema has made sure that it is a list.
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

// unsettled is the finding why one of Flux' objects has not reconciled its last change; nil if it has. The
// conditions come before the generation: Flux leaves observedGeneration at -1 until the first success, so
// that a new object's failure would otherwise hide behind "not reconciled yet".
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
		why, kind = ready.Why(), gate.Waits
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
	if from.Finding != nil || wanted == "" {
		return nil
	}
	if object.GetKind() == "HelmRelease" {
		switch from.Object.GetKind() {
		case "HelmChart":
			applied = client.Text(object, "status", "lastAttemptedRevision")
		case "OCIRepository":
			// The chart's version has no tag's name; both have the digest, if Flux records it.
			applied = client.Text(object, "status", "lastAttemptedRevisionDigest")
			if _, digest, tagged := strings.Cut(wanted, "@"); tagged {
				wanted = digest
			}
			if applied == "" {
				return nil
			}
		default:
			return nil
		}
	}
	if applied == wanted {
		return nil
	}
	return problem("", client.Title(object), "has applied %s, its source is at %s",
		cmp.Or(applied, "nothing"), wanted)
}

// sources lists each kind of source once in an attempt, however many use it.
type sources struct {
	a     *client.API
	kinds map[string][]client.Object
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

// awaited are the findings of the sources that a Kustomization has applied: its health checks may wait for
// them, and its conditions do not name them.
func (s sources) awaited(ctx context.Context, object *client.Object) (all []*gate.Finding, err error) {
	entries, _, _ := unstructured.NestedSlice(object.Object, "status", "inventory", "entries")
	for _, entry := range entries {
		fields, _ := entry.(map[string]any)
		id, _ := fields["id"].(string)
		if of := strings.Split(id, "_"); len(of) == 4 && of[2] == sourceGroup {
			source, err := s.get(ctx, client.Reference{Kind: of[3], Namespace: of[0], Name: of[1]})
			if err != nil {
				return nil, err
			}
			all = append(all, source.Finding)
		}
	}
	return all, nil
}

// get finds a source. A HelmRepository of type oci is only an address: it has no status.
func (s sources) get(ctx context.Context, ref client.Reference) (FluxSource, error) {
	if _, listed := s.kinds[ref.Kind]; !listed {
		objects, err := s.a.ListIn(ctx, sourceGroup, ref.Kind, "")
		if err != nil && !client.IsNotServed(err) {
			return FluxSource{}, err
		}
		s.kinds[ref.Kind] = objects
	}
	source, objects := FluxSource{}, s.kinds[ref.Kind]
	i := slices.IndexFunc(objects, func(o client.Object) bool { return client.ReferenceTo(&o) == ref })
	if i < 0 {
		source.Finding = problem(gate.NotFound, ref.String(), "does not exist yet")
		return source, nil
	}
	source.Object = &objects[i]
	if ref.Kind == "HelmRepository" && client.Text(source.Object, "spec", "type") == "oci" {
		return source, nil
	}
	source.Finding = unsettled(source.Object)
	source.revision = client.Text(source.Object, "status", "artifact", "revision")
	if source.Finding == nil && source.revision == "" {
		source.Finding = problem("", ref.String(), "has no artifact yet")
	}
	return source, nil
}
