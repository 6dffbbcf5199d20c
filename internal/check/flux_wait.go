package check

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/ephemeral-castle/castle/internal/gitops"
	"github.com/ephemeral-castle/castle/internal/tfeval"
)

// storages are charts that make volumes: whatever claims one needs them.
const storages = " longhorn rook-ceph rook-ceph-cluster openebs democratic-csi csi-driver-nfs "

// slow are charts with many images or slow starts, or whose author allows more than Flux's five minutes.
const slow = storages + "kube-prometheus-stack loki tempo mimir harbor gitlab elasticsearch opensearch " +
	"kafka nextcloud airflow "

func (r *repository) isSlow(o gitops.Object) bool {
	timeout, err := time.ParseDuration(field(o, "spec", "timeout"))
	return err == nil && timeout > 5*time.Minute || strings.Contains(slow, " "+r.chartOf(o)+" ")
}

// checkSlow finds a slow release in a Kustomization that others wait for, and that need nothing of it: they
// get ready later than they could, and a failure of the release stops them.
func (r *repository) checkSlow() {
	for _, k := range r.kustomizations {
		if !k.Wait || k.Suspend || len(k.Objects) < 2 {
			continue
		}
		for _, o := range k.Objects {
			if !isRelease(o) || !r.isSlow(o) {
				continue
			}
			var delayed []string
			for _, d := range r.kustomizations {
				if slices.Contains(d.DependsOn, k.Key) && !d.Suspend && !r.needs(d, o) {
					delayed = append(delayed, d.Key.String())
				}
			}
			if len(delayed) > 0 {
				r.find(finding{"slow-first", named(o), r.at(o.At), named(o),
					"others wait for it without need",
					"Kustomization %s has wait: true, so that this slow release delays what depends on it. " +
						"These need nothing of the release: %s. Move it into a Kustomization of its own, " +
						"on which only those depend that need it."},
					k.Key, strings.Join(delayed, ", "))
			}
		}
	}
}

// needs reports whether a Kustomization, or one that it declares, may use what a release brings.
func (r *repository) needs(d *gitops.Kustomization, release gitops.Object) bool {
	if d.Elsewhere != "" {
		return true
	}
	chart := r.chartOf(release)
	storage := strings.Contains(storages, " "+chart+" ")
	if slices.ContainsFunc(d.Objects, func(o gitops.Object) bool {
		group := o.GroupVersionKind().Group
		switch {
		case gitops.IsKustomization(o.Unstructured):
			return false // below
		case isRelease(o), slices.Contains(operators()[chart], group):
			return true
		case strings.Contains(group, ".") && !strings.HasSuffix(group, ".k8s.io") &&
			!strings.HasSuffix(group, ".toolkit.fluxcd.io"):
			return len(r.providersOf(o)) == 0 // nobody knows who brings its kind
		case storage:
			text, err := json.Marshal(o.Object)
			return err != nil || o.GetKind() == "PersistentVolumeClaim" ||
				strings.Contains(string(text), `"persistentVolumeClaim"`) ||
				strings.Contains(string(text), `"volumeClaimTemplates"`)
		}
		return false
	}) {
		return true
	}
	return slices.ContainsFunc(r.kustomizations, func(child *gitops.Kustomization) bool {
		return child.Parent == d && r.needs(child, release)
	})
}

// checkHealthChecks finds health checks of objects that nobody makes. What a chart makes is not known, so
// nothing is concluded about the namespaces of releases, and about what has none beside a release.
func (r *repository) checkHealthChecks() {
	if r.unread() {
		return
	}
	released, anywhere := map[string]bool{}, map[string]bool{}
	for _, s := range r.objects {
		released[s.Namespace] = released[s.Namespace] || s.Kind == tfeval.Release
	}
	for _, k := range r.kustomizations {
		for _, o := range k.Objects {
			anywhere[o.GetKind()+" "+o.GetName()] = true
			if isRelease(o) {
				released[cmp.Or(field(o, "spec", "targetNamespace"), o.GetNamespace())] = true
			}
		}
	}
	for _, k := range r.kustomizations {
		for _, c := range k.HealthChecks() {
			o := tfeval.Object{Kind: c.Kind, Namespace: c.Namespace, Name: c.Name}
			if r.made(o.String()) || released[c.Namespace] || c.Namespace == "kube-system" {
				continue
			}
			// kustomize gives a namespace to custom resources of the cluster, too; a Deployment has one
			custom := c.Namespace == "" && strings.Contains(c.APIVersion, ".")
			if custom && (anywhere[o.String()] || slices.ContainsFunc(k.Objects, isRelease)) {
				continue
			}
			r.find(finding{"health-check-never", k.Key.String() + o.String(), r.at(k.At),
				"Kustomization " + k.Key.String(), "waits for " + o.String() + ", which nobody makes",
				"spec.healthChecks names it, and neither Flux's repository nor a stage has it: the " +
					"Kustomization never gets ready, and what depends on it never starts. Correct the " +
					"kind, namespace and name, or remove the health check."})
		}
	}
}
