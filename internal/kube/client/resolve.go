package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/siderolabs/gen/xslices"
	discovery "k8s.io/api/apidiscovery/v2"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/ephemeral-castle/castle/internal/gate"
)

// client-go's discovery and mapper take no context, so that a hanging API would outlast an attempt. All
// look-ups here read the API's aggregated discovery.

// Resource is a kind as the API serves it.
type Resource struct {
	schema.GroupVersionResource
	Kind       string
	Namespaced bool
}

// NotServed is a kind that no CRD or API server serves yet.
type NotServed struct{ Kind, Where string }

func (e NotServed) Error() string {
	if e.Where == "" {
		return fmt.Sprintf("the API serves no kind %s yet", e.Kind)
	}
	return fmt.Sprintf("the API serves no kind %s in %s yet", e.Kind, e.Where)
}

// IsNotServed reports whether err is NotServed or wraps it.
func IsNotServed(err error) bool {
	_, absent := errors.AsType[NotServed](err)
	return absent
}

// Resolve finds a kind in one version of one group: "apps/v1".
func (a *API) Resolve(ctx context.Context, apiVersion, kind string) (Resource, error) {
	gv, err := schema.ParseGroupVersion(apiVersion)
	if err != nil {
		return Resource{}, gate.Permanent(err)
	}
	served := false
	match := func(at schema.GroupVersionKind) bool {
		served = served || at.GroupVersion() == gv
		return at == gv.WithKind(kind)
	}
	found, err := a.find(ctx, NotServed{kind, apiVersion}, roots(gv.Group), match)
	if IsNotServed(err) && served && !strings.Contains(gv.Group, ".") {
		// Only Kubernetes itself has such groups, and none of their kinds comes later.
		err = gate.Permanent(fmt.Errorf("%s has no kind %s", apiVersion, kind))
	}
	return found, err
}

// ResolveIn finds a kind in the first of a group's versions that has it, in the API's order of preference.
func (a *API) ResolveIn(ctx context.Context, group, kind string) (Resource, error) {
	return a.find(ctx, NotServed{kind, group}, roots(group), func(at schema.GroupVersionKind) bool {
		return at.GroupKind() == schema.GroupKind{Group: group, Kind: kind}
	})
}

// ResolveKind finds the one group that has a kind. A kind that several groups have is permanently ambiguous.
func (a *API) ResolveKind(ctx context.Context, kind string) (Resource, error) {
	return a.find(ctx, NotServed{Kind: kind}, everyRoot,
		func(at schema.GroupVersionKind) bool { return at.Kind == kind })
}

// ResolveBuiltin finds the built-in kind with this name; it ignores case and underscores.
func (a *API) ResolveBuiltin(ctx context.Context, name string) (Resource, error) {
	name = strings.ReplaceAll(name, "_", "")
	own := NotServed{name, "Kubernetes' own groups"}
	return a.find(ctx, own, everyRoot, func(at schema.GroupVersionKind) bool {
		builtin := !strings.Contains(at.Group, ".") || strings.HasSuffix(at.Group, ".k8s.io")
		return builtin && strings.EqualFold(at.Kind, name)
	})
}

// everyRoot lists where the API lists its groups: the core group, and the named ones.
var everyRoot = []string{"/api", "/apis"}

// roots returns where the API lists one group.
func roots(group string) []string {
	if group == "" {
		return everyRoot[:1]
	}
	return everyRoot[1:]
}

// find returns the kind that matches, in the first version of its group that has it: the API lists the
// preferred one first. It caches its results.
func (a *API) find(ctx context.Context, wanted NotServed, roots []string,
	match func(schema.GroupVersionKind) bool) (Resource, error) {
	if known, ok := a.known.Load(wanted); ok {
		return known.(Resource), nil
	}
	var found []Resource
	for _, root := range roots {
		served, err := a.groups(ctx, root, wanted.Kind)
		if err != nil {
			a.Read(Selection{Resource: Definitions})
			return Resource{}, err
		}
		for _, group := range served {
			if r, ok := inGroup(group, match); ok {
				found = append(found, r)
			}
		}
	}
	switch {
	case len(found) == 0:
		a.Read(Selection{Resource: Definitions}) // a definition is the first sign of the kind
		return Resource{}, wanted
	case len(found) > 1 && wanted.Where == "":
		candidates := xslices.Map(found, func(r Resource) string { return r.GroupVersion().String() })
		slices.Sort(candidates)
		return Resource{}, gate.Permanent(fmt.Errorf("kind %s is ambiguous; set api_version to one of %s",
			wanted.Kind, strings.Join(candidates, ", ")))
	}
	a.known.Store(wanted, found[0])
	return found[0], nil
}

// groups reads the API's groups with their kinds, in the search for one.
func (a *API) groups(ctx context.Context, root, kind string) ([]discovery.APIGroupDiscovery, error) {
	const accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
	body, err := a.Raw.Get().AbsPath(root).SetHeader("Accept", accept).Do(ctx).Raw()
	if err != nil {
		return nil, err
	}
	var list discovery.APIGroupDiscoveryList
	if err := json.Unmarshal(body, &list); err != nil {
		return nil, fmt.Errorf("kubernetes API at %s: %s: %w", a.Host, root, err)
	}
	if list.Kind != "APIGroupDiscoveryList" {
		return nil, gate.Permanent(fmt.Errorf("kind %s: this API does not list the kinds of its groups",
			kind))
	}
	return list.Items, nil
}

func inGroup(group discovery.APIGroupDiscovery, match func(schema.GroupVersionKind) bool) (Resource, bool) {
	for _, version := range group.Versions {
		at := schema.GroupVersion{Group: group.Name, Version: version.Version}
		for _, r := range version.Resources {
			if r.ResponseKind != nil && match(at.WithKind(r.ResponseKind.Kind)) {
				return Resource{GroupVersionResource: at.WithResource(r.Resource), Kind: r.ResponseKind.Kind,
					Namespaced: r.Scope == discovery.ScopeNamespace}, true
			}
		}
	}
	return Resource{}, false
}
