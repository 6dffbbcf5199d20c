package kube

import (
	"context"
	"strings"

	discovery "k8s.io/api/apidiscovery/v2"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/ephemeral-castle/castle/internal/gate"
)

// Exists reports whether an object exists. Its kind may be written in any case:
// Terraform's types have no capitals (config_map, api_service). Only kinds of
// Kubernetes' own are known by such a name. namespace is empty for an object of
// the cluster itself.
func Exists(ctx context.Context, target gate.Target, kind, namespace, name string) (yes bool, err error) {
	err = newCluster(target, "").ask(func(ctx context.Context, a *api) error {
		in, err := a.resolveOwn(ctx, kind)
		if err != nil {
			return err
		}
		_, err = a.get(ctx, in.GroupVersionResource, namespace, name)
		if apierrors.IsNotFound(err) {
			return nil
		}
		yes = err == nil
		return err
	})(ctx)
	return yes, err
}

// resolveOwn finds the kind of Kubernetes' own with this name, whatever its case
// and the underscores in it.
func (a *api) resolveOwn(ctx context.Context, name string) (resource, error) {
	name = strings.ReplaceAll(name, "_", "")
	return a.once("own "+name, func() (resource, error) {
		for _, root := range []string{"/api", "/apis"} {
			var served discovery.APIGroupDiscoveryList
			if err := a.read(ctx, root, "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList", &served); err != nil {
				return resource{}, err
			}
			for _, group := range served.Items {
				if strings.Contains(group.Name, ".") && !strings.HasSuffix(group.Name, ".k8s.io") {
					continue
				}
				for _, version := range group.Versions {
					for _, r := range version.Resources {
						if r.ResponseKind != nil && strings.EqualFold(r.ResponseKind.Kind, name) {
							if found, ok := inGroup(group, r.ResponseKind.Kind); ok {
								return found, nil
							}
						}
					}
				}
			}
		}
		return resource{}, notServed{kind: name}
	})
}
