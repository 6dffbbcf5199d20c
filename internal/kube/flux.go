package kube

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/zclconf/go-cty/cty"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/ephemeral-castle/castle/internal/gate"
)

const (
	kustomizeGroup = "kustomize.toolkit.fluxcd.io"
	helmGroup      = "helm.toolkit.fluxcd.io"
	sourceGroup    = "source.toolkit.fluxcd.io"
)

// flux asks whether the cluster is what its repository says: every
// Kustomization and HelmRelease has reconciled its last change, from sources
// that have an artifact, and none is behind its source. A root may add others
// at any time, so the gate belongs with a stable above 1; an attempt that sees
// others than the one before is closed.
func flux() gate.Type {
	return gate.Type{
		Name:       "flux",
		Summary:    "every Flux Kustomization and HelmRelease is reconciled from its source's revision",
		Kubernetes: true,
		Attributes: map[string]gate.Attribute{
			"namespace": {Type: cty.String, Valid: validName, Help: "the objects' namespace; default all"},
			"names":     {Type: cty.List(cty.String), Valid: validNames, Help: "the only Kustomizations that matter; HelmReleases are left out then. Default all of both"},
		},
		New: func(name string, target gate.Target, v gate.Values) (gate.Gate, error) {
			f := &convergence{namespace: v.String("namespace")}
			if err := v.Decode("names", &f.names); err != nil {
				return gate.Gate{}, fmt.Errorf("names: %w", err)
			}
			c := newCluster(target, "")
			return gate.Gate{Name: name, Check: c.ask(f.check), Changed: c.changes(f.selections), TriggerReconcile: c.nudge(f)}, nil
		},
	}
}

// convergence is a flux gate's arguments and what its last attempt saw.
type convergence struct {
	namespace string
	names     []string

	mu   sync.Mutex
	seen []string
}

func (f *convergence) check(ctx context.Context, a *api) error {
	subjects, err := f.look(ctx, a)
	if err != nil {
		return err
	}
	var closed []fault
	for _, s := range subjects {
		if s.source.why != "" {
			closed = append(closed, fault{what: s.source.what, why: s.source.why})
		}
		if s.why != "" {
			closed = append(closed, fault{title(&s.object), s.why, s.consequence})
		}
	}
	moved := f.moved(subjects)
	if err := report(closed); err != nil {
		return err
	}
	return moved
}

// moved compares what matters now with what did in the attempt before.
func (f *convergence) moved(subjects []subject) error {
	var now []string
	for _, s := range subjects {
		now = append(now, title(&s.object))
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	before := f.seen
	f.seen = now
	if before == nil {
		return nil
	}
	var moved []string
	for _, what := range now {
		if !slices.Contains(before, what) {
			moved = append(moved, what+": has come since the attempt before")
		}
	}
	for _, what := range before {
		if !slices.Contains(now, what) {
			moved = append(moved, what+": has gone since the attempt before")
		}
	}
	if len(moved) == 0 {
		return nil
	}
	return errors.New(several(moved))
}

// appliers lists the Kustomizations and HelmReleases that matter.
func (f *convergence) appliers(ctx context.Context, a *api) ([]unstructured.Unstructured, error) {
	kustomizations, err := a.listIn(ctx, kustomizeGroup, "Kustomization", f.namespace)
	if err != nil {
		return nil, err
	}
	if len(f.names) > 0 {
		return f.named(kustomizations)
	}
	if len(kustomizations) == 0 {
		return nil, errors.New("no Kustomization exists yet" + in(f.namespace))
	}
	releases, err := a.listIn(ctx, helmGroup, "HelmRelease", f.namespace)
	if absent := (notServed{}); errors.As(err, &absent) {
		return kustomizations, nil // Flux without its helm-controller
	}
	return append(kustomizations, releases...), err
}

func (f *convergence) named(all []unstructured.Unstructured) ([]unstructured.Unstructured, error) {
	var found []unstructured.Unstructured
	missing := slices.Clone(f.names)
	for _, k := range all {
		if slices.Contains(f.names, k.GetName()) {
			found = append(found, k)
			missing = slices.DeleteFunc(missing, func(name string) bool { return name == k.GetName() })
		}
	}
	if len(missing) > 0 {
		return nil, fmt.Errorf("no Kustomization %s exists yet%s", strings.Join(missing, ", "), in(f.namespace))
	}
	return found, nil
}

func in(namespace string) string {
	if namespace == "" {
		return ""
	}
	return " in namespace " + namespace
}

// listIn reads a kind in whichever version the API prefers.
func (a *api) listIn(ctx context.Context, group, kind, namespace string) ([]unstructured.Unstructured, error) {
	r, err := a.resolveIn(ctx, group, kind)
	if err != nil {
		return nil, err
	}
	objects, err := a.list(ctx, r.GroupVersionResource, namespace, "")
	if apierrors.IsNotFound(err) {
		return nil, notServed{kind, group}
	}
	return objects, err
}

// fault is one object that is not as it should be.
type fault struct {
	what, why   string
	consequence bool // it only waits for another
}

// report names causes before consequences, and each object once.
func report(faults []fault) error {
	if len(faults) == 0 {
		return nil
	}
	slices.SortFunc(faults, func(x, y fault) int {
		if x.consequence != y.consequence {
			if x.consequence {
				return 1
			}
			return -1
		}
		return cmp.Compare(x.what, y.what)
	})
	var lines []string
	for _, f := range slices.Compact(faults) {
		lines = append(lines, f.what+": "+f.why)
	}
	return errors.New(several(lines))
}
