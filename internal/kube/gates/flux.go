package gates

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/zclconf/go-cty/cty"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/kube/client"
)

const (
	kustomizeGroup = "kustomize.toolkit.fluxcd.io"
	helmGroup      = "helm.toolkit.fluxcd.io"
	sourceGroup    = "source.toolkit.fluxcd.io"
)

// flux checks that the cluster matches its repository. Every Kustomization and HelmRelease has reconciled
// its last change, from sources with an artifact, and none is behind its source. A root may add others at
// any time, so the gate belongs with a stable above 1. An attempt that sees other objects than the one
// before is closed.
func flux() definition {
	return definition{gate.Type{
		Name:    "flux",
		Summary: "every Flux Kustomization and HelmRelease is reconciled from its source's revision",
		Attributes: map[string]gate.Attribute{
			"namespace": {Type: cty.String, Valid: validName, Help: "the objects' namespace; default all"},
			"names": {Type: cty.List(cty.String), Valid: validNames,
				Help: "the only Kustomizations that matter, without HelmReleases; default all of both"},
		},
	}, func(v gate.Values) (Checker, error) { return NewFlux(v) }}
}

// Flux is a flux gate's arguments and the objects of its last attempt.
type Flux struct {
	namespace string
	names     []string

	mu   sync.Mutex
	seen []string
}

// NewFlux reads the arguments.
func NewFlux(v gate.Values) (*Flux, error) {
	f := &Flux{namespace: v.String("namespace")}
	if err := v.Decode("names", &f.names); err != nil {
		return nil, fmt.Errorf("names: %w", err)
	}
	return f, nil
}

// Check is closed by an object or source that is not settled.
func (f *Flux) Check(ctx context.Context, a *client.API) error {
	objects, err := f.objects(ctx, a)
	if err != nil {
		return err
	}
	var closed []unsettled
	for _, o := range objects {
		if o.source.why != "" {
			closed = append(closed, unsettled{what: o.source.what, why: o.source.why})
		}
		if o.why != "" {
			closed = append(closed, unsettled{client.Title(&o.object), o.why, o.waits})
		}
	}
	changed := f.changed(objects)
	if len(closed) > 0 {
		return report(closed)
	}
	return changed
}

// unsettled is one object that is not as it should be.
type unsettled struct {
	what, why string
	waits     bool // only for another one
}

// report names causes before consequences, and each object once.
func report(all []unsettled) error {
	slices.SortFunc(all, func(x, y unsettled) int {
		if x.waits != y.waits {
			if x.waits {
				return 1
			}
			return -1
		}
		return cmp.Compare(x.what, y.what)
	})
	var lines []string
	for _, u := range slices.Compact(all) {
		lines = append(lines, u.what+": "+u.why)
	}
	return errors.New(client.Several(lines))
}

// changed compares the objects with those of the attempt before.
func (f *Flux) changed(objects []fluxObject) error {
	var now []string
	for _, o := range objects {
		now = append(now, client.Title(&o.object))
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	before := f.seen
	f.seen = now
	if before == nil {
		return nil
	}
	var changed []string
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
	if len(changed) == 0 {
		return nil
	}
	return errors.New(client.Several(changed))
}

// Selections are all kinds that decide whether Flux has converged. Only the objects name their sources, so
// all sources are watched. castle retries a kind that this Flux lacks now and then.
func (f *Flux) Selections(ctx context.Context, a *client.API) ([]client.Selection, error) {
	var (
		all  []client.Selection
		errs []error
	)
	for _, k := range []struct{ group, kind, namespace string }{
		{kustomizeGroup, "Kustomization", f.namespace},
		{helmGroup, "HelmRelease", f.namespace},
		{sourceGroup, "GitRepository", ""},
		{sourceGroup, "HelmRepository", ""},
		{sourceGroup, "HelmChart", ""},
		{sourceGroup, "OCIRepository", ""},
		{sourceGroup, "Bucket", ""},
	} {
		r, err := a.ResolveIn(ctx, k.group, k.kind)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		all = append(all, client.Selection{Resource: r.GroupVersionResource, Namespace: k.namespace})
	}
	return all, errors.Join(errs...)
}

// Appliers lists the Kustomizations and HelmReleases that matter.
func (f *Flux) Appliers(ctx context.Context, a *client.API) ([]client.Object, error) {
	kustomizations, err := a.ListIn(ctx, kustomizeGroup, "Kustomization", f.namespace)
	if err != nil {
		return nil, err
	}
	if len(f.names) > 0 {
		return f.named(kustomizations)
	}
	if len(kustomizations) == 0 {
		return nil, errors.New("no Kustomization exists yet" + in(f.namespace))
	}
	releases, err := a.ListIn(ctx, helmGroup, "HelmRelease", f.namespace)
	if client.IsNotServed(err) {
		return kustomizations, nil // Flux without its helm-controller
	}
	return append(kustomizations, releases...), err
}

func (f *Flux) named(all []client.Object) ([]client.Object, error) {
	var found []client.Object
	missing := slices.Clone(f.names)
	for _, k := range all {
		if slices.Contains(f.names, k.GetName()) {
			found = append(found, k)
			missing = slices.DeleteFunc(missing, func(name string) bool { return name == k.GetName() })
		}
	}
	if len(missing) > 0 {
		return nil, fmt.Errorf("no Kustomization %s exists yet%s", strings.Join(missing, ", "),
			in(f.namespace))
	}
	return found, nil
}

const (
	// requestedAt asks Flux' controllers to reconcile an object now.
	requestedAt = "reconcile.fluxcd.io/requestedAt"
	// again is the least time between two requests for one object.
	again = 30 * time.Second
)

// trigger makes a flux gate's TriggerReconcile. A Kustomization retries only after a pause when a dependency
// or source was not ready, and after a failure maybe many minutes later. On request, it retries at once.
func (f *Flux) trigger(c *client.Cluster) func(context.Context) (string, error) {
	return func(ctx context.Context) (did string, err error) {
		err = c.Check(func(ctx context.Context, a *client.API) (err error) {
			did, err = f.requestReconcile(ctx, a, time.Now())
			return err
		})(ctx)
		return did, err
	}
}

func (f *Flux) requestReconcile(ctx context.Context, a *client.API, now time.Time) (string, error) {
	objects, err := f.objects(ctx, a)
	if err != nil {
		return "", err
	}
	var (
		requested []string
		errs      []error
	)
	for _, o := range objects {
		if o.why == "" || o.source.why != "" || !isIdle(&o.object) || requestedLately(&o.object, now) {
			continue
		}
		ready, err := dependenciesReady(ctx, a, o, objects)
		if err == nil && ready {
			err = annotate(ctx, a, &o.object, now)
			if err == nil {
				requested = append(requested, client.Title(&o.object))
			}
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", client.Title(&o.object), err))
		}
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

// dependenciesReady reports whether all dependencies of an object have converged. They may be outside of the
// gate's own objects.
func dependenciesReady(ctx context.Context, a *client.API, o fluxObject, known []fluxObject) (bool, error) {
	needs, err := Dependencies(&o.object)
	if err != nil {
		return false, err
	}
	for _, need := range needs {
		if ready, err := dependencyReady(ctx, a, need, known); err != nil || !ready {
			return false, err
		}
	}
	return true, nil
}

func dependencyReady(ctx context.Context, a *client.API, ref Reference, known []fluxObject) (bool, error) {
	settled := func(o fluxObject) bool { return cmp.Or(o.why, o.source.why) == "" }
	for _, o := range known {
		if ref == ReferenceTo(&o.object) {
			return settled(o), nil
		}
	}
	object, err := getFlux(ctx, a, groupOf(ref.Kind), ref)
	if gate.KindOf(err) == gate.NotFound {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	o, err := sources{a, map[Reference]source{}}.object(ctx, *object)
	return settled(o) && err == nil, err
}

func groupOf(kind string) string {
	if kind == "HelmRelease" {
		return helmGroup
	}
	return kustomizeGroup
}

func annotate(ctx context.Context, a *client.API, object *client.Object, now time.Time) error {
	r, err := a.ResolveIn(ctx, groupOf(object.GetKind()), object.GetKind())
	if err != nil {
		return err
	}
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, requestedAt,
		now.UTC().Format(time.RFC3339Nano))
	_, err = a.Dynamic.Resource(r.GroupVersionResource).Namespace(object.GetNamespace()).
		Patch(ctx, object.GetName(), types.MergePatchType, patch, metav1.PatchOptions{FieldManager: "castle"})
	return err
}
