package check

import (
	"slices"
	"strings"

	"github.com/ephemeral-castle/castle/internal/gitops"
	"github.com/ephemeral-castle/castle/internal/tfeval"
)

// operators are charts that bring kinds of their own, and the API groups of these.
// There is one of each in a cluster, whatever its release is called.
func operators() map[string][]string {
	return map[string][]string{
		"argo-cd":                {"argoproj.io"},
		"cert-manager":           {"cert-manager.io", "acme.cert-manager.io"},
		"cilium":                 {"cilium.io"},
		"cloudnative-pg":         {"postgresql.cnpg.io"},
		"external-secrets":       {"external-secrets.io", "generators.external-secrets.io"},
		"flux2":                  {"source.toolkit.fluxcd.io", "kustomize.toolkit.fluxcd.io", "helm.toolkit.fluxcd.io"},
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

// server is what brings a kind into the cluster.
type server struct {
	kustomization *gitops.Kustomization
	object        gitops.Object
}

// serversOf are the HelmReleases and CRDs of Flux's that bring the kind of an object.
func (c *cluster) serversOf(o gitops.Object) []server {
	group := o.GroupVersionKind().Group
	var all []server
	for _, k := range c.repository.Kustomizations {
		for _, s := range k.Objects {
			brings := s.GetKind() == "CustomResourceDefinition" && field(s, "spec", "group") == group && field(s, "spec", "names", "kind") == o.GetKind() ||
				isRelease(s) && slices.Contains(operators()[c.chartOf(s)], group)
			if brings {
				all = append(all, server{k, s})
			}
		}
	}
	return all
}

// eachCustom goes through what needs a kind that Flux itself brings.
func (c *cluster) eachCustom(do func(k *gitops.Kustomization, o gitops.Object, servers []server)) {
	repository, _ := c.flux()
	if repository == nil {
		return
	}
	for _, k := range repository.Kustomizations {
		for _, o := range k.Objects {
			if c.there(o.GroupVersionKind().Group) {
				continue
			}
			if servers := c.serversOf(o); len(servers) > 0 {
				do(k, o, servers)
			}
		}
	}
}

// there reports whether a group is Kubernetes' own or Flux's, or one that a stage brings.
func (c *cluster) there(group string) bool {
	return !strings.Contains(group, ".") || strings.HasSuffix(group, ".k8s.io") || strings.HasSuffix(group, ".toolkit.fluxcd.io") ||
		slices.ContainsFunc(c.stageObjects(), func(m tfeval.Object) bool {
			return m.Kind == tfeval.Release && slices.Contains(operators()[m.Chart], group)
		})
}

// besideOperator finds a custom resource in one Kustomization with the release that
// brings its kind. A CRD may be there: Flux applies those first.
func besideOperator(c *cluster, report reporter) {
	c.eachCustom(func(k *gitops.Kustomization, o gitops.Object, servers []server) {
		for _, s := range servers {
			if s.kustomization == k && isRelease(s.object) {
				report(c.inFlux(o.Place), named(o)+": beside its operator",
					"Kustomization %s holds it together with %s (%s), which brings its kind. Flux asks the API about all objects before it applies any: "+
						"as long as the kind is unknown it refuses them all, the operator too. Move it into a Kustomization of its own, with dependsOn: %s.",
					k.Key, named(s.object), where(c.inFlux(s.object.Place)), k.Name)
			}
		}
	})
}

// beforeOperator finds a custom resource that does not wait for what brings its kind.
func beforeOperator(c *cluster, report reporter) {
	c.eachCustom(func(k *gitops.Kustomization, o gitops.Object, servers []server) {
		first := c.before(k)
		for _, s := range servers {
			if s.kustomization == k || slices.Contains(first, s.kustomization) && (s.kustomization.Waits() || !isRelease(s.object)) {
				return
			}
		}
		s, missing := servers[0], "dependsOn: "+servers[0].kustomization.Name
		if slices.Contains(first, s.kustomization) {
			missing = "wait: true in Kustomization " + s.kustomization.Key.String() + ", which is ready before its releases are otherwise"
		}
		report(c.inFlux(o.Place), named(o)+": does not wait for its operator",
			"%s (%s) brings its kind, with Kustomization %s, and %s may be applied before: it then fails, and is tried again only after its retryInterval. It lacks %s.",
			named(s.object), where(c.inFlux(s.object.Place)), s.kustomization.Key, k.Key, missing)
	})
}

// before are the Kustomizations that are ready before k is applied.
func (c *cluster) before(k *gitops.Kustomization) []*gitops.Kustomization {
	var all []*gitops.Kustomization
	var add func(k *gitops.Kustomization)
	add = func(k *gitops.Kustomization) {
		for _, n := range k.DependsOn {
			i := slices.IndexFunc(c.repository.Kustomizations, func(o *gitops.Kustomization) bool { return o.Key == n })
			if i < 0 || slices.Contains(all, c.repository.Kustomizations[i]) {
				continue
			}
			d := c.repository.Kustomizations[i]
			all = append(all, d)
			for _, child := range c.repository.Kustomizations {
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
