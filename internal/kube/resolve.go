package kube

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
// outlast an attempt. What a gate needs of them is the three questions here.

// resource is a kind as the API serves it.
type resource struct {
	schema.GroupVersionResource
	namespaced bool
}

// notServed says that no CRD or API server serves a kind yet.
type notServed struct{ kind, where string }

func (e notServed) Error() string {
	if e.where == "" {
		return fmt.Sprintf("the API serves no kind %s yet", e.kind)
	}
	return fmt.Sprintf("the API serves no kind %s in %s yet", e.kind, e.where)
}

// resolve finds a kind in one version of one group: "apps/v1".
func (a *api) resolve(ctx context.Context, apiVersion, kind string) (resource, error) {
	return a.once(apiVersion+" "+kind, func() (resource, error) {
		gv, err := schema.ParseGroupVersion(apiVersion)
		if err != nil {
			return resource{}, gate.Permanent(err)
		}
		path := "/apis/" + apiVersion
		if gv.Group == "" {
			path = "/api/" + gv.Version
		}
		var served metav1.APIResourceList
		err = a.read(ctx, path, "application/json", &served)
		if apierrors.IsNotFound(err) {
			return resource{}, notServed{kind, apiVersion}
		}
		if err != nil {
			return resource{}, err
		}
		for _, r := range served.APIResources {
			if r.Kind == kind && !strings.Contains(r.Name, "/") { // a/b is a subresource
				return resource{gv.WithResource(r.Name), r.Namespaced}, nil
			}
		}
		if !strings.Contains(gv.Group, ".") {
			// Only Kubernetes itself has such groups, and none of their kinds comes later.
			return resource{}, gate.Permanent(fmt.Errorf("%s has no kind %s", apiVersion, kind))
		}
		return resource{}, notServed{kind, apiVersion}
	})
}

// resolveIn finds a kind in the first of a group's versions, in the order that
// the API prefers, which has it.
func (a *api) resolveIn(ctx context.Context, group, kind string) (resource, error) {
	return a.once(group+"/* "+kind, func() (resource, error) {
		var served metav1.APIGroup
		err := a.read(ctx, "/apis/"+group, "application/json", &served)
		if apierrors.IsNotFound(err) {
			return resource{}, notServed{kind, group}
		}
		if err != nil {
			return resource{}, err
		}
		versions := []string{served.PreferredVersion.GroupVersion}
		for _, v := range served.Versions {
			if !slices.Contains(versions, v.GroupVersion) {
				versions = append(versions, v.GroupVersion)
			}
		}
		for _, v := range versions {
			found, err := a.resolve(ctx, v, kind)
			if absent := (notServed{}); !errors.As(err, &absent) {
				return found, err
			}
		}
		return resource{}, notServed{kind, group}
	})
}

// resolveKind finds the one group that has a kind. A kind that several groups
// have is permanently ambiguous.
func (a *api) resolveKind(ctx context.Context, kind string) (resource, error) {
	return a.once(kind, func() (resource, error) {
		var found []resource
		for _, root := range []string{"/api", "/apis"} {
			var served discovery.APIGroupDiscoveryList
			if err := a.read(ctx, root, "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList", &served); err != nil {
				return resource{}, err
			}
			if served.Kind != "APIGroupDiscoveryList" {
				return resource{}, gate.Permanent(fmt.Errorf("kind %s: this API cannot say which group has it; set api_version", kind))
			}
			for _, group := range served.Items {
				if r, ok := inGroup(group, kind); ok {
					found = append(found, r)
				}
			}
		}
		switch len(found) {
		case 0:
			return resource{}, notServed{kind: kind}
		case 1:
			return found[0], nil
		}
		var candidates []string
		for _, r := range found {
			candidates = append(candidates, r.GroupVersion().String())
		}
		slices.Sort(candidates)
		return resource{}, gate.Permanent(fmt.Errorf("kind %s is ambiguous; set api_version to one of %s", kind, strings.Join(candidates, ", ")))
	})
}

// inGroup finds a kind in a group's first version that has it: the API lists the preferred one first.
func inGroup(group discovery.APIGroupDiscovery, kind string) (resource, bool) {
	for _, version := range group.Versions {
		for _, r := range version.Resources {
			if r.ResponseKind != nil && r.ResponseKind.Kind == kind {
				at := schema.GroupVersion{Group: group.Name, Version: version.Version}
				return resource{at.WithResource(r.Resource), r.Scope == discovery.ScopeNamespace}, true
			}
		}
	}
	return resource{}, false
}

// once remembers what find has found, but no failure.
func (a *api) once(key string, find func() (resource, error)) (resource, error) {
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
func (a *api) read(ctx context.Context, path, accept string, into any) error {
	body, err := a.raw.Get().AbsPath(path).SetHeader("Accept", accept).Do(ctx).Raw()
	if err != nil {
		return err
	}
	if err := json.Unmarshal(body, into); err != nil {
		return fmt.Errorf("kubernetes API at %s: %s: %w", a.host, path, err)
	}
	return nil
}
