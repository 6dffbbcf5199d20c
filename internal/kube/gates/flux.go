package gates

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/zclconf/go-cty/cty"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/kube/client"
)

const (
	kustomizeGroup = "kustomize.toolkit.fluxcd.io"
	helmGroup      = "helm.toolkit.fluxcd.io"
	sourceGroup    = "source.toolkit.fluxcd.io"
)

// flux checks that the cluster matches its repository: every Kustomization and
// HelmRelease has reconciled its last change, from sources that have an artifact,
// and none is behind its source. A root may add others at any time, so the gate
// belongs with a stable above 1; an attempt that sees other objects than the one
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

// Selections are all kinds that decide whether Flux has converged. Which sources
// matter is known only from the objects that use them, so all are watched, and a
// kind that this Flux does not have is requested in vain now and then.
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
func (f *Flux) Appliers(ctx context.Context, a *client.API) ([]unstructured.Unstructured, error) {
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

func (f *Flux) named(all []unstructured.Unstructured) ([]unstructured.Unstructured, error) {
	var found []unstructured.Unstructured
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
