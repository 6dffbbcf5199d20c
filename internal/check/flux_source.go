package check

import (
	"cmp"
	"slices"
	"strings"

	"github.com/zclconf/go-cty/cty"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/gitops"
	"github.com/ephemeral-castle/castle/internal/syntax"
	"github.com/ephemeral-castle/castle/internal/tfeval"
)

// checkClone compares the clone with what Flux reads: the commits of a branch.
func (r *repository) checkClone(report reporter) {
	c := r.cluster
	own, wanted := gitops.Branch(c.config.GitOps.Repository), c.text("git_branch")
	if own != "" && wanted != "" && own != wanted && !followsArtifact(c) {
		report("clone-branch", c.config.GitOps.At, "Flux's repository: the clone is on another branch",
			"Flux follows %s (%s), and castle reads %s, which the clone has checked out. Check out %[1]s, "+
				"or correct git_branch.", wanted, syntax.Place(c.at("git_branch")), own)
	}
	for _, k := range r.kustomizations {
		for _, i := range k.Ignored {
			r.find(finding{"gitops-ignored", i.By.String(), r.at(gitops.Place{File: i.File, Line: 1}),
				"Kustomization " + k.Key.String(), "a manifest that Git ignores",
				"Flux would apply %s, and never gets it: %s keeps it out of the commits. Change the " +
					"pattern, add the file with git add --force, or move it."},
				i.File, syntax.Place(r.at(i.By)))
		}
	}
}

// made reports whether a stage or Flux makes an object, such as "Secret flux-system/sops-age".
func (r *repository) made(object string) bool {
	if slices.ContainsFunc(r.objects, func(o tfeval.Object) bool { return o.String() == object }) {
		return true
	}
	return slices.ContainsFunc(r.kustomizations, func(k *gitops.Kustomization) bool {
		return slices.ContainsFunc(k.Objects, func(o gitops.Object) bool {
			target := identity(o)
			if o.GetKind() == "ExternalSecret" {
				target.Kind, target.Name = "Secret", cmp.Or(field(o, "spec", "target", "name"), o.GetName())
			}
			return target.String() == object || named(o) == object
		})
	})
}

// unread reports whether Flux applies objects that castle cannot read: those of a source that exists.
func (r *repository) unread() bool {
	return slices.ContainsFunc(r.kustomizations, func(k *gitops.Kustomization) bool {
		return k.Elsewhere != "" && r.made(k.Elsewhere)
	})
}

// checkSources finds Kustomizations and HelmReleases whose source nobody makes; a controller makes some.
func (r *repository) checkSources() {
	if r.unread() {
		return
	}
	missing := func(source string) bool {
		return !strings.HasPrefix(source, "ExternalArtifact ") && !r.made(source)
	}
	root := r.kustomizations[0].Source()
	for _, k := range r.kustomizations {
		for _, o := range k.Objects {
			source := sourceOf(o)
			if isRelease(o) && source.Name != "" && missing(source.String()) {
				r.find(finding{"source-missing", source.String(), r.at(o.At), named(o),
					source.String() + " is made by nobody",
					"No stage makes it, and Flux's repository does not declare it: the release is never " +
						"installed. Correct its name and namespace, or declare it."})
			}
		}
		if k.Elsewhere == "" || !missing(k.Elsewhere) {
			continue
		}
		r.find(finding{"source-missing", k.Elsewhere, r.at(k.At), "Kustomization " + k.Key.String(),
			k.Elsewhere + " is made by nobody",
			"No stage makes it, and Flux's repository does not declare it: the Kustomization never gets " +
				"ready. The source of this repository is %s; name it in spec.sourceRef, with " +
				"its namespace, or declare the other one."}, root)
	}
}

// checkControllers finds objects of controllers that Flux's chart installs only on request.
func (r *repository) checkControllers() {
	requests := []struct{ group, controller, variable, value string }{
		{"source.extensions.fluxcd.io", "sourceWatcher", "flux_values",
			"[yamlencode({ sourceWatcher = { create = true } })]"},
		{"image.toolkit.fluxcd.io", "imageReflectionController", "flux_image_automation", "true"},
	}
	own := map[string]bool{} // groups of which the repository itself has kinds
	for _, k := range r.kustomizations {
		for _, o := range k.Objects {
			own[field(o, "spec", "group")] = true // "" but for a CustomResourceDefinition
		}
	}
	for _, s := range r.cluster.config.Stages {
		inputs := s.KnownInputs(r.cluster.outputs(), r.births)
		for _, q := range requests {
			v, more := inputs[q.variable], inputs["flux_values"]
			set := v == cty.NilVal || v.RawEquals(cty.True) || strings.Contains(more.GoString(), q.controller)
			if own[q.group] || set || !v.IsWhollyKnown() || !more.IsWhollyKnown() {
				continue
			}
			for _, k := range r.kustomizations {
				for _, o := range k.Objects {
					if o.GroupVersionKind().Group == q.group {
						r.find(finding{"controller-missing", q.group, r.at(o.At), named(o),
							"its controller is not installed",
							"Flux's chart installs it on request. Without it, its kind is unknown, and " +
								"Flux applies nothing of Kustomization %s. Set %s = %s for stage %s, %s."},
							k.Key, q.variable, q.value, s.Name, syntax.Place(s.At()))
					}
				}
			}
		}
	}
}

// checkKeys finds objects that SOPS has encrypted and Flux cannot decrypt.
func (r *repository) checkKeys() {
	for _, k := range r.kustomizations {
		key := "Secret " + k.Key.Namespace + "/" + k.Keys
		if k.Keys != "" && !r.made(key) && !r.unread() {
			r.find(finding{"sops-key-missing", key, r.at(k.At), "Kustomization " + k.Key.String(),
				key + " is made by nobody",
				"spec.decryption takes the keys of SOPS from it, and the Kustomization never gets ready " +
					"without. sync_sops_age = true makes flux-system/sops-age. Let a stage of your own " +
					"make another one before Flux starts, or an ExternalSecret of another Kustomization."})
		}
		for _, o := range k.Objects {
			if _, encrypted := o.Object["sops"]; encrypted && !k.Decrypts {
				r.find(finding{"sops-undecrypted", k.Key.String(), r.at(o.At), named(o),
					"encrypted, and nothing decrypts it",
					"Kustomization %s (%s) has no spec.decryption: Flux refuses the Secret, or " +
						"applies it with its encrypted values. Add decryption with provider: sops and the " +
						"secretRef of its keys."},
					k.Key, syntax.Place(r.at(k.At)))
			}
		}
	}
}

// checkSuspended finds objects for which a gate of a stage would wait, and Flux leaves them alone.
func (r *repository) checkSuspended() {
	waits := func(g *config.Gate) bool { return g.Type.Name == "flux" }
	for _, s := range r.cluster.config.Stages {
		if !slices.ContainsFunc(s.Gates, waits) {
			continue
		}
		for _, k := range r.kustomizations {
			for _, o := range k.Objects {
				//nolint:errcheck // another type is not true
				suspended, _, _ := unstructured.NestedBool(o.Object, "spec", "suspend")
				if !suspended || k.Suspend || !isRelease(o) && !gitops.IsKustomization(o.Unstructured) {
					continue
				}
				r.find(finding{"suspended", "", r.at(o.At), named(o), "suspended",
					"Flux does not reconcile it, and a gate of stage %s waits for that. Remove " +
						"spec.suspend before a create, or remove the object."}, s.Name)
			}
		}
	}
}
