package kube

import (
	"path"
	"slices"
	"strings"

	discovery "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// kind is a kind that the fake API serves: "apps/v1", "Deployment", "deployments".
type kind struct {
	apiVersion, kind, plural string
	namespaced               bool
}

func (k kind) gv() schema.GroupVersion {
	gv, err := schema.ParseGroupVersion(k.apiVersion)
	if err != nil {
		panic(err)
	}
	return gv
}

func (k kind) root() string {
	if k.gv().Group == "" {
		return "/api/" + k.apiVersion
	}
	return "/apis/" + k.apiVersion
}

func (f *fakeAPI) serves(apiVersion, name, plural string, namespaced bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.kinds = append(f.kinds, kind{apiVersion, name, plural, namespaced})
}

// collects reports whether a path is the list of a served kind. Tests need not list the kinds that every
// cluster has.
func (f *fakeAPI) collects(at string) bool {
	if slices.Contains([]string{"nodes", "endpointslices", "storageclasses", "csinodes"}, path.Base(at)) {
		return true
	}
	return slices.ContainsFunc(f.kinds, func(k kind) bool { return k.root()+"/"+k.plural == everywhere(at) })
}

// discovery answers /api, /apis (in the aggregated form), /apis/group and /apis/group/version.
func (f *fakeAPI) discovery(at, accept string) (any, bool) {
	if at == "/api" || at == "/apis" {
		if !strings.Contains(accept, "as=APIGroupDiscoveryList") {
			return nil, false
		}
		return f.aggregated(at), true
	}
	list := metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList"}}
	group := metav1.APIGroup{TypeMeta: metav1.TypeMeta{Kind: "APIGroup"}}
	for _, k := range f.kinds {
		version := metav1.GroupVersionForDiscovery{GroupVersion: k.apiVersion, Version: k.gv().Version}
		switch at {
		case k.root():
			list.GroupVersion = k.apiVersion
			list.APIResources = append(list.APIResources,
				metav1.APIResource{Name: k.plural + "/status", Kind: k.kind, Namespaced: k.namespaced},
				metav1.APIResource{Name: k.plural, Kind: k.kind, Namespaced: k.namespaced})
		case "/apis/" + k.gv().Group:
			if group.Name == "" {
				group.Name, group.PreferredVersion = k.gv().Group, version
			}
			if !slices.Contains(group.Versions, version) {
				group.Versions = append(group.Versions, version)
			}
		}
	}
	if group.Name != "" {
		return group, true
	}
	return list, len(list.APIResources) > 0
}

func (f *fakeAPI) aggregated(at string) discovery.APIGroupDiscoveryList {
	list := discovery.APIGroupDiscoveryList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupDiscoveryList",
		APIVersion: "apidiscovery.k8s.io/v2"}}
	for _, k := range f.kinds {
		if core := k.gv().Group == ""; core != (at == "/api") {
			continue
		}
		scope := discovery.ScopeCluster
		if k.namespaced {
			scope = discovery.ScopeNamespace
		}
		list.Items = append(list.Items, discovery.APIGroupDiscovery{
			ObjectMeta: metav1.ObjectMeta{Name: k.gv().Group},
			Versions: []discovery.APIVersionDiscovery{{
				Version: k.gv().Version,
				Resources: []discovery.APIResourceDiscovery{{
					Resource: k.plural, Scope: scope, ResponseKind: &metav1.GroupVersionKind{Kind: k.kind},
				}},
			}},
		})
	}
	return list
}
