package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	discovery "k8s.io/api/apidiscovery/v2"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/ephemeral-castle/castle/internal/gate"
)

// client-go's discovery and mapper take no context, so that a hanging API would
// outlast an attempt. Checks need only the four look-ups here.

// Resource is a kind as the API serves it.
type Resource struct {
	schema.GroupVersionResource
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
	var absent NotServed
	return errors.As(err, &absent)
}

// Resolve finds a kind in one version of one group: "apps/v1".
func (a *API) Resolve(ctx context.Context, apiVersion, kind string) (Resource, error) {
	return a.once(apiVersion+" "+kind, func() (Resource, error) {
		gv, err := schema.ParseGroupVersion(apiVersion)
		if err != nil {
			return Resource{}, gate.Permanent(err)
		}
		path := "/apis/" + apiVersion
		if gv.Group == "" {
			path = "/api/" + gv.Version
		}
		var served metav1.APIResourceList
		err = a.read(ctx, path, "application/json", &served)
		if apierrors.IsNotFound(err) {
			return Resource{}, NotServed{kind, apiVersion}
		}
		if err != nil {
			return Resource{}, err
		}
		for _, r := range served.APIResources {
			if r.Kind == kind && !strings.Contains(r.Name, "/") { // a/b is a subresource
				return Resource{gv.WithResource(r.Name), r.Namespaced}, nil
			}
		}
		if !strings.Contains(gv.Group, ".") {
			// Only Kubernetes itself has such groups, and none of their kinds comes later.
			return Resource{}, gate.Permanent(fmt.Errorf("%s has no kind %s", apiVersion, kind))
		}
		return Resource{}, NotServed{kind, apiVersion}
	})
}

// ResolveIn finds a kind in the first of a group's versions that has it, in the
// API's order of preference.
func (a *API) ResolveIn(ctx context.Context, group, kind string) (Resource, error) {
	return a.once(group+"/* "+kind, func() (Resource, error) {
		var served metav1.APIGroup
		err := a.read(ctx, "/apis/"+group, "application/json", &served)
		if apierrors.IsNotFound(err) {
			return Resource{}, NotServed{kind, group}
		}
		if err != nil {
			return Resource{}, err
		}
		versions := []string{served.PreferredVersion.GroupVersion}
		for _, v := range served.Versions {
			if !slices.Contains(versions, v.GroupVersion) {
				versions = append(versions, v.GroupVersion)
			}
		}
		for _, v := range versions {
			if found, err := a.Resolve(ctx, v, kind); !IsNotServed(err) {
				return found, err
			}
		}
		return Resource{}, NotServed{kind, group}
	})
}

// ResolveKind finds the one group that has a kind. A kind that several groups
// have is permanently ambiguous.
func (a *API) ResolveKind(ctx context.Context, kind string) (Resource, error) {
	return a.once(kind, func() (Resource, error) {
		groups, err := a.groups(ctx, kind)
		if err != nil {
			return Resource{}, err
		}
		var found []Resource
		for _, group := range groups {
			if r, ok := inGroup(group, kind); ok {
				found = append(found, r)
			}
		}
		switch len(found) {
		case 0:
			return Resource{}, NotServed{Kind: kind}
		case 1:
			return found[0], nil
		}
		var candidates []string
		for _, r := range found {
			candidates = append(candidates, r.GroupVersion().String())
		}
		slices.Sort(candidates)
		return Resource{}, gate.Permanent(fmt.Errorf("kind %s is ambiguous; set api_version to one of %s",
			kind, strings.Join(candidates, ", ")))
	})
}

// resolveBuiltin finds the kind of Kubernetes' own with this name, whatever its
// case and the underscores in it.
func (a *API) resolveBuiltin(ctx context.Context, name string) (Resource, error) {
	name = strings.ReplaceAll(name, "_", "")
	return a.once("builtin "+name, func() (Resource, error) {
		groups, err := a.groups(ctx, name)
		if err != nil {
			return Resource{}, err
		}
		for _, group := range groups {
			if strings.Contains(group.Name, ".") && !strings.HasSuffix(group.Name, ".k8s.io") {
				continue
			}
			for _, version := range group.Versions {
				for _, r := range version.Resources {
					if r.ResponseKind == nil || !strings.EqualFold(r.ResponseKind.Kind, name) {
						continue
					}
					if found, ok := inGroup(group, r.ResponseKind.Kind); ok {
						return found, nil
					}
				}
			}
		}
		return Resource{}, NotServed{Kind: name}
	})
}

// groups lists all groups with their kinds, in the search for one.
func (a *API) groups(ctx context.Context, kind string) ([]discovery.APIGroupDiscovery, error) {
	const list = "APIGroupDiscoveryList"
	var all []discovery.APIGroupDiscovery
	for _, root := range []string{"/api", "/apis"} {
		var served discovery.APIGroupDiscoveryList
		if err := a.read(ctx, root, "application/json;g=apidiscovery.k8s.io;v=v2;as="+list,
			&served); err != nil {
			return nil, err
		}
		if served.Kind != list {
			return nil, gate.Permanent(fmt.Errorf(
				"kind %s: this API does not list the kinds of its groups; set api_version", kind))
		}
		all = append(all, served.Items...)
	}
	return all, nil
}

// inGroup finds a kind in a group's first version that has it: the API lists the preferred one first.
func inGroup(group discovery.APIGroupDiscovery, kind string) (Resource, bool) {
	for _, version := range group.Versions {
		for _, r := range version.Resources {
			if r.ResponseKind != nil && r.ResponseKind.Kind == kind {
				at := schema.GroupVersion{Group: group.Name, Version: version.Version}
				return Resource{at.WithResource(r.Resource), r.Scope == discovery.ScopeNamespace}, true
			}
		}
	}
	return Resource{}, false
}

// once remembers what find has found, but no failure.
func (a *API) once(key string, find func() (Resource, error)) (Resource, error) {
	a.mu.Lock()
	known, ok := a.known[key]
	a.mu.Unlock()
	if ok {
		return known, nil
	}
	found, err := find()
	if err == nil {
		a.mu.Lock()
		a.known[key] = found
		a.mu.Unlock()
	}
	return found, err
}

// read fetches a document that is no object.
func (a *API) read(ctx context.Context, path, accept string, into any) error {
	body, err := a.Raw.Get().AbsPath(path).SetHeader("Accept", accept).Do(ctx).Raw()
	if err != nil {
		return err
	}
	if err := json.Unmarshal(body, into); err != nil {
		return fmt.Errorf("kubernetes API at %s: %s: %w", a.Host, path, err)
	}
	return nil
}
