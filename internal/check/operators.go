package check

import (
	"slices"
	"strings"

	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/gitops"
	"github.com/ephemeral-castle/castle/internal/tfeval"
)

const toolkitHelm = "helm.toolkit.fluxcd.io"

// operators lists charts that bring kinds of their own, with the API groups of these. A cluster has one of
// each, under any release name.
func operators() map[string][]string {
	return map[string][]string{
		"argo-cd":                {"argoproj.io"},
		"cert-manager":           {"cert-manager.io", "acme.cert-manager.io"},
		"cilium":                 {"cilium.io"},
		"cloudnative-pg":         {"postgresql.cnpg.io"},
		"external-secrets":       {"external-secrets.io", "generators.external-secrets.io"},
		"flux2":                  {"source.toolkit.fluxcd.io", "kustomize.toolkit.fluxcd.io", toolkitHelm},
		"keda":                   {"keda.sh"},
		"kube-prometheus-stack":  {"monitoring.coreos.com"},
		"kyverno":                {"kyverno.io"},
		"longhorn":               {"longhorn.io"},
		"metallb":                {"metallb.io"},
		"pgo":                    {"postgres-operator.crunchydata.com"},
		"tailscale-operator":     {"tailscale.com"},
		"traefik":                {"traefik.io"},
		"trust-manager":          {"trust.cert-manager.io"},
		"vault-secrets-operator": {"secrets.hashicorp.com"},
	}
}

// provider is an object of Flux's that brings a kind: a HelmRelease or a CRD.
type provider struct {
	kustomization *gitops.Kustomization
	object        gitops.Object
}

// providersOf are those that bring the kind of an object; none if a stage, Kubernetes or Flux itself does.
func (r *repository) providersOf(o gitops.Object) []provider {
	group := o.GroupVersionKind().Group
	staged := func(s tfeval.Object) bool {
		return s.Kind == tfeval.Release && slices.Contains(operators()[s.Chart], group)
	}
	if !strings.Contains(group, ".") || strings.HasSuffix(group, ".k8s.io") ||
		strings.HasSuffix(group, ".toolkit.fluxcd.io") || slices.ContainsFunc(r.objects, staged) {
		return nil
	}
	var all []provider
	for _, k := range r.kustomizations {
		for _, s := range k.Objects {
			defines := s.GetKind() == "CustomResourceDefinition" &&
				field(s, "spec", "group") == group && field(s, "spec", "names", "kind") == o.GetKind()
			if defines || isRelease(s) && slices.Contains(operators()[r.chartOf(s)], group) {
				all = append(all, provider{k, s})
			}
		}
	}
	return all
}

// checkOperators finds custom resources that Flux would apply before their kind exists. Either they share a
// Kustomization with the release that brings it, or theirs does not wait for it. A CRD may share one: Flux
// applies CRDs first.
func (r *repository) checkOperators(report reporter) {
	for _, k := range r.kustomizations {
		for _, o := range k.Objects {
			providers := r.providersOf(o)
			for _, p := range providers {
				if p.kustomization == k && isRelease(p.object) {
					report("beside-operator", r.at(o.At), named(o)+": beside its operator",
						"Kustomization %s has it together with %s (%s), which brings its kind. Flux "+
							"validates all objects before it applies any: as long as the kind is unknown it "+
							"refuses them all, the operator too. Move it into a Kustomization of its own, "+
							"with dependsOn: %s.",
						k.Key, named(p.object), config.Place(r.at(p.object.At)), k.Key.Name)
				}
			}
			if missing := r.missingWait(k, providers); missing != "" {
				p := providers[0]
				report("before-operator", r.at(o.At), named(o)+": does not wait for its operator",
					"%s (%s) brings its kind, with Kustomization %s, and %s may be applied before: it then "+
						"fails, and is retried only after its retryInterval. It lacks %s.",
					named(p.object), config.Place(r.at(p.object.At)), p.kustomization.Key, k.Key, missing)
			}
		}
	}
}

// missingWait explains how to make a Kustomization wait for one of the providers; "" if it waits.
func (r *repository) missingWait(k *gitops.Kustomization, providers []provider) string {
	first := r.before(k)
	for _, p := range providers {
		ready := p.kustomization.Waits() || !isRelease(p.object)
		if p.kustomization == k || slices.Contains(first, p.kustomization) && ready {
			return ""
		}
	}
	switch {
	case len(providers) == 0:
		return ""
	case slices.Contains(first, providers[0].kustomization):
		return "wait: true in Kustomization " + providers[0].kustomization.Key.String() +
			", which is otherwise ready before its releases are"
	}
	return "dependsOn: " + providers[0].kustomization.Key.Name
}

// before are the Kustomizations that are ready before k is applied.
func (r *repository) before(k *gitops.Kustomization) []*gitops.Kustomization {
	var all []*gitops.Kustomization
	var add func(k *gitops.Kustomization)
	add = func(k *gitops.Kustomization) {
		for _, d := range r.kustomizations {
			if !slices.Contains(k.DependsOn, d.Key) || slices.Contains(all, d) {
				continue
			}
			all = append(all, d)
			for _, child := range r.kustomizations {
				if child.Parent == d && d.Wait {
					all = append(all, child)
				}
			}
			add(d)
		}
		if k.Parent != nil {
			add(k.Parent)
		}
	}
	add(k)
	return all
}
