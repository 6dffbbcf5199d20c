package check

import (
	"cmp"
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/siderolabs/gen/xslices"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/ephemeral-castle/castle/internal/gitops"
	"github.com/ephemeral-castle/castle/internal/survivor"
	"github.com/ephemeral-castle/castle/internal/syntax"
	"github.com/ephemeral-castle/castle/internal/tfeval"
)

// repository holds the objects that Flux applies from its Git repository, beside those of the stages.
type repository struct {
	cluster        *cluster
	births         survivor.Births // with which the inputs are evaluated
	kustomizations []*gitops.Kustomization
	problems       gitops.Problems
	objects        []tfeval.Object // of the enabled stages, as far as their names are known
	findings       []finding
}

// finding is a problem of something in the repository.
type finding struct {
	kind                  Kind
	cause                 string // findings of one cause are reported together, at the first place
	at                    hcl.Range
	what, problem, detail string // "ConfigMap default/x", "does not wait for its operator"
}

func (r *repository) find(f finding, args ...any) {
	f.detail = fmt.Sprintf(f.detail, args...)
	r.findings = append(r.findings, f)
}

// report reports each cause once.
func (r *repository) report(report reporter) {
	slices.SortStableFunc(r.findings, func(a, b finding) int {
		return cmp.Or(cmp.Compare(a.at.Filename, b.at.Filename),
			cmp.Compare(a.at.Start.Line, b.at.Start.Line))
	})
	others := map[string][]string{}
	key := func(f finding) string { return string(f.kind) + " " + f.cause }
	for _, f := range r.findings {
		others[key(f)] = append(others[key(f)], fmt.Sprintf("%s (%s)", f.what, syntax.Place(f.at)))
	}
	for _, f := range r.findings {
		if all := others[key(f)]; len(all) > 1 {
			f.detail += " The same applies to " + bounded(all[1:]) + "."
		}
		if others[key(f)] != nil {
			report(f.kind, f.at, f.what+": "+f.problem, "%s", f.detail)
		}
		others[key(f)] = nil
	}
}

// checkFlux reads the repository and checks it, unless no clone of it is named, or Flux has no path in it.
// Flux gets other paths where data are restored, and these must not fail for the first time after a destroy.
func checkFlux(c *cluster, report reporter) {
	path := c.text("git_path")
	if c.config.GitOps == nil && followsArtifact(c) {
		report("artifact-unread", c.at("git_url"), "git_url: castle does not read artifacts",
			"Problems in it show when Flux applies it. gitops { repository = \"…\" } in cluster.hcl names "+
				"the folder that you push, which castle then checks instead.")
	}
	if c.config.GitOps == nil || path == "" || c.invalid["git_path"] {
		return
	}
	restored := survivor.Births{}
	for _, s := range c.config.Stages {
		for _, d := range s.Survivors {
			restored[d.Label] = survivor.Birth{From: &survivor.Save{}}
		}
	}
	seen := map[string]bool{}
	once := func(kind Kind, at hcl.Range, summary, detail string, args ...any) {
		finding := fmt.Sprint(kind, at, summary, detail, args)
		if !seen[finding] {
			report(kind, at, summary, detail, args...)
		}
		seen[finding] = true
	}
	(&repository{cluster: c}).check(path, once)
	if len(restored) > 0 {
		(&repository{cluster: c, births: restored}).check(path, once)
	}
}

// followsArtifact reports whether Flux follows an OCI artifact instead of a Git repository.
func followsArtifact(c *cluster) bool { return strings.HasPrefix(c.text("git_url"), "oci://") }

func (r *repository) check(path string, report reporter) {
	c, o := r.cluster, gitops.Options{Path: path, Folder: r.cluster.config.GitOps.Repository}
	for _, s := range c.config.Stages {
		inputs := s.KnownInputs(c.outputs(), r.births)
		r.objects = append(r.objects, tfeval.Read(s, inputs).Objects()...)
		if v, has := inputs["sync_substitutes"]; has && tfeval.Printed(v) == "true" {
			o.RootVariables = "cluster-vars"
		}
		if v, has := inputs["sync_sops_age"]; has && tfeval.Printed(v) == "true" {
			o.RootKeys = "sops-age"
		}
	}
	for _, made := range r.objects {
		switch made.Group {
		case "kustomize.toolkit.fluxcd.io": // the root
			o.Namespace = made.Namespace
		case "source.toolkit.fluxcd.io":
			o.Source = made.Kind
		}
	}
	o.Variables = r.variables
	var err error
	r.kustomizations, err = gitops.Read(o)
	if !errors.As(err, &r.problems) && err != nil {
		r.problems = gitops.Problems{{Message: err.Error()}}
	}
	r.checkContent(report)
	r.checkOwners()
	r.checkLeftToFlux(report)
	r.checkOperators()
	r.checkClone(report)
	r.checkSources()
	r.checkControllers()
	r.checkKeys()
	r.checkSuspended()
	r.checkSlow()
	r.checkHealthChecks()
	r.report(report)
}

// variables are those that a ConfigMap of a stage gives Flux to substitute.
func (r *repository) variables(kind, namespace, name string) (map[string]string, bool) {
	for _, o := range r.objects {
		if o.Is(tfeval.Object{Kind: kind, Namespace: namespace, Name: name}) && o.Data != nil {
			return o.Data, true
		}
	}
	return nil, false
}

// at is a place in Flux's repository, relative to the castle repository.
func (r *repository) at(p gitops.Place) hcl.Range {
	c := r.cluster.config
	if p.File == "" {
		return c.GitOps.At
	}
	file := filepath.Join(c.GitOps.Named, filepath.FromSlash(p.File))
	root, err := filepath.EvalSymlinks(filepath.Join(c.Dir, "..", "..", ".."))
	if relative, otherErr := filepath.Rel(root, file); err == nil && otherErr == nil {
		file = relative
	}
	// Bytes are not known; a line is enough to name and to sort.
	start := hcl.Pos{Line: p.Line, Column: 1, Byte: p.Line}
	end := hcl.Pos{Line: p.Line, Column: 1, Byte: p.Line + min(p.Line, 1)}
	return hcl.Range{Filename: filepath.ToSlash(file), Start: start, End: end}
}

// checkContent reports unreadable files, and variables for which Flux would substitute nothing.
func (r *repository) checkContent(report reporter) {
	c := r.cluster
	for _, p := range r.problems {
		if p.At.File == "" {
			p.Message += ". Flux begins at git_path (" + syntax.Place(c.at("git_path")) +
				"); castle new --gitops writes such a folder"
		}
		report("gitops-unreadable", r.at(p.At), "Flux's repository: not all can be read", "%s.", p.Message)
	}
	for _, k := range r.kustomizations {
		for _, u := range k.Unset {
			r.find(finding{"variable-unset", u.Variable, r.at(u.Object.At), named(u.Object),
				"${" + u.Variable + "} is set nowhere",
				"Flux substitutes variables for Kustomization %s, and one without a value becomes empty. " +
					"Set it in cluster_vars (%s), give it a default with ${%s:=…}, " +
					"or write $${%[3]s} if Flux should not substitute it."},
				k.Key, syntax.Place(c.at("cluster_vars")), u.Variable)
		}
	}
}

// checkOwners finds objects that both Flux and a stage apply.
func (r *repository) checkOwners() {
	for _, k := range r.kustomizations {
		for _, o := range k.Objects {
			for _, s := range r.objects {
				verb := r.shared(s, o)
				if verb == "" || k.Suspend {
					continue
				}
				r.find(finding{"owned-twice", s.Stage.Name + verb + named(o), r.at(o.At), named(o),
					"stage " + s.Stage.Name + " " + verb + ", too",
					"Flux applies it with Kustomization %s, Terraform has it at %s, and each reverts the " +
						"other's changes at every interval or create. Delete it here, or leave it to Flux: " +
						"%senabled = false in stage %s, %s."},
					k.Key, syntax.Place(s.At), r.without(s), s.Stage.Name, syntax.Place(s.Stage.At()))
			}
		}
	}
}

// without names the optional variable without which a stage creates all but an object, or little less; or "".
func (r *repository) without(object tfeval.Object) string {
	foreign := func(o tfeval.Object) bool { return o.Stage != object.Stage }
	own := slices.DeleteFunc(slices.Clone(r.objects), foreign)
	for _, variable := range names(object.Stage.Variables) {
		fallback, has := object.Stage.Variables[variable].Default()
		if !has || !fallback.IsNull() {
			continue
		}
		inputs := object.Stage.KnownInputs(r.cluster.outputs(), r.births)
		inputs[variable] = fallback
		remaining := tfeval.Read(object.Stage, inputs).Objects()
		if len(remaining) >= len(own) || slices.ContainsFunc(remaining, object.Is) {
			continue // it asks for something else, or only names the object
		}
		var others []string
		for _, o := range own {
			if !o.Is(object) && !slices.ContainsFunc(remaining, o.Is) {
				others = append(others, o.String())
			}
		}
		fix := fmt.Sprintf("no %s, %s", variable, syntax.Place(object.Stage.Written(variable).At()))
		if len(others) > 0 {
			fix += fmt.Sprintf(" (which leaves %s to Flux, too)", strings.Join(others, " and "))
		}
		return fix + ", or "
	}
	return ""
}

// checkLeftToFlux finds a disabled stage whose gates wait for a chart that Flux does not
// install. Other sources of Flux's are not known, so nothing is concluded beside them.
func (r *repository) checkLeftToFlux(report reporter) {
	elsewhere := func(k *gitops.Kustomization) bool { return k.Elsewhere != "" }
	if len(r.problems) > 0 || slices.ContainsFunc(r.kustomizations, elsewhere) {
		return
	}
	for _, s := range r.cluster.config.Disabled {
		if s.Delegate == nil || s.Delegate.Layer != "gitops" {
			continue
		}
		for _, b := range tfeval.Read(s, nil).Known("resource", "helm_release") {
			chart := b.Text("chart")
			if chart == "" || strings.HasPrefix(chart, "./") || r.installs(chart) {
				continue
			}
			report("left-to-nobody", s.At(), "stage "+s.Name+": left to Flux, which does not install it",
				"Stage %s checks its gates, and Flux installs no chart %s from git_path on (%s): "+
					"they would not open. Add a HelmRelease to Flux's repository, or enable the stage.",
				s.Delegate.Name, chart, syntax.Place(r.cluster.at("git_path")))
		}
	}
}

// installs reports whether Flux installs a chart.
func (r *repository) installs(chart string) bool {
	return slices.ContainsFunc(r.kustomizations, func(k *gitops.Kustomization) bool {
		return !k.Suspend && slices.ContainsFunc(k.Objects, func(o gitops.Object) bool {
			return isRelease(o) && r.chartOf(o) == chart
		})
	})
}

// shared names the action of a stage that a Flux manifest repeats; "" for none.
func (r *repository) shared(s tfeval.Object, o gitops.Object) string {
	group := o.GroupVersionKind().Group
	if s.Kind != tfeval.Release {
		same := identity(o)
		same.Group = group
		name := cmp.Or(field(o, "spec", "target", "name"), o.GetName())
		secret := tfeval.Object{Kind: "Secret", Namespace: o.GetNamespace(), Name: name}
		switch {
		case s.Is(same):
			return "makes it"
		case group == "external-secrets.io" && o.GetKind() == "ExternalSecret" &&
			field(o, "spec", "target", "creationPolicy") != "Merge" && s.Is(secret):
			return "makes its Secret " + s.Name
		}
		return ""
	}
	if !isRelease(o) {
		return ""
	}
	target := field(o, "spec", "targetNamespace")
	name := strings.TrimPrefix(target+"-"+o.GetName(), "-")
	name = cmp.Or(field(o, "spec", "releaseName"), name)
	if s.Name == name && s.Namespace == cmp.Or(target, o.GetNamespace()) {
		return "installs this release"
	}
	if chart := r.chartOf(o); chart == s.Chart && len(operators()[chart]) > 0 {
		return "installs the chart " + chart
	}
	return ""
}

// chartOf is the name of the chart that a HelmRelease installs.
func (r *repository) chartOf(o gitops.Object) string {
	if chart := field(o, "spec", "chart", "spec", "chart"); chart != "" {
		return path.Base(chart)
	}
	want := sourceOf(o)
	for _, k := range r.kustomizations {
		for _, source := range k.Objects {
			if want.Name != "" && identity(source).Is(want) {
				return path.Base(cmp.Or(field(source, "spec", "url"), field(source, "spec", "chart")))
			}
		}
	}
	return ""
}

// sourceOf is what a HelmRelease takes its chart from; without a name if castle does not find it.
func sourceOf(o gitops.Object) tfeval.Object {
	from := []string{"spec", "chart", "spec", "sourceRef"}
	if field(o, "spec", "chartRef", "name") != "" {
		from = []string{"spec", "chartRef"}
	}
	ref := func(name string) string { return field(o, append(slices.Clone(from), name)...) }
	return tfeval.Object{
		Kind: ref("kind"), Namespace: cmp.Or(ref("namespace"), o.GetNamespace()), Name: ref("name"),
	}
}

func isRelease(o gitops.Object) bool {
	return o.GetKind() == "HelmRelease" && o.GroupVersionKind().Group == toolkitHelm
}

// identity is an object's kind and name, without its group.
func identity(o gitops.Object) tfeval.Object {
	return tfeval.Object{Kind: o.GetKind(), Namespace: o.GetNamespace(), Name: o.GetName()}
}

func named(o gitops.Object) string { return identity(o).String() }

// field is a string of an object, "" if it has none there.
func field(o gitops.Object, fields ...string) string {
	text, _, _ := unstructured.NestedString(o.Object, fields...) //nolint:errcheck // another type is no text
	return text
}

const toolkitHelm = "helm.toolkit.fluxcd.io"

// operators lists charts that bring kinds of their own, one of each in a cluster, with their API groups.
func operators() map[string][]string {
	return map[string][]string{
		"argo-cd":                {"argoproj.io"},
		"cert-manager":           {"cert-manager.io", "acme.cert-manager.io"},
		"cilium":                 {"cilium.io"},
		"cloudnative-pg":         {"postgresql.cnpg.io"},
		"external-secrets":       {"external-secrets.io", "generators.external-secrets.io"},
		"flux2":                  {"source.toolkit.fluxcd.io", "kustomize.toolkit.fluxcd.io", toolkitHelm},
		"gateway-helm":           {"gateway.envoyproxy.io"},
		"grafana-operator":       {"grafana.integreatly.org"},
		"keda":                   {"keda.sh"},
		"kube-prometheus-stack":  {"monitoring.coreos.com"},
		"kyverno":                {"kyverno.io"},
		"longhorn":               {"longhorn.io"},
		"metallb":                {"metallb.io"},
		"node-feature-discovery": {"nfd.k8s-sigs.io"},
		"pgo":                    {"postgres-operator.crunchydata.com"},
		"rook-ceph":              {"ceph.rook.io"},
		"tailscale-operator":     {"tailscale.com"},
		"traefik":                {"traefik.io"},
		"trust-manager":          {"trust.cert-manager.io"},
		"vault-secrets-operator": {"secrets.hashicorp.com"},
		"volsync":                {"volsync.backube"},
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
// Kustomization with the release that brings it, or with the Kustomization of that release, or theirs does
// not wait for it. A CRD may share one: Flux applies CRDs first.
func (r *repository) checkOperators() {
	for _, k := range r.kustomizations {
		for _, o := range k.Objects {
			providers := r.providersOf(o)
			if len(providers) == 0 || r.waits(k, providers) {
				continue
			}
			beside := func(p provider) bool { return within(p.kustomization, k) }
			if i := slices.IndexFunc(providers, beside); i >= 0 {
				p := providers[i]
				r.find(finding{"beside-operator", k.Key.String() + named(p.object), r.at(o.At), named(o),
					"beside its operator",
					"%s (%s) brings its kind, with Kustomization %s, and Flux validates all objects of %s " +
						"before it applies any: as long as the kind is unknown it refuses them all, " +
						"the operator too. Move it into a Kustomization of its own, with %s."},
					named(p.object), syntax.Place(r.at(p.object.At)), p.kustomization.Key, k.Key,
					dependsOn(k, p))
				continue
			}
			p := providers[0]
			missing, cause := dependsOn(k, p), p.kustomization.Key.String()
			if slices.Contains(r.before(k), p.kustomization) {
				cause += " wait"
				missing = "wait: true in Kustomization " + p.kustomization.Key.String() +
					", which is otherwise ready before its releases are"
			}
			r.find(finding{"before-operator", cause, r.at(o.At), named(o),
				"does not wait for its operator",
				"%s (%s) brings its kind, with Kustomization %s, and %s may be applied before: it then " +
					"fails, and is retried only after its retryInterval. It lacks %s."},
				named(p.object), syntax.Place(r.at(p.object.At)), p.kustomization.Key, k.Key, missing)
		}
	}
}

// waits reports whether a provider brings its kind before Flux applies other objects of a Kustomization.
func (r *repository) waits(k *gitops.Kustomization, providers []provider) bool {
	first := r.before(k)
	return slices.ContainsFunc(providers, func(p provider) bool {
		definition := !isRelease(p.object)
		return definition && p.kustomization == k ||
			slices.Contains(first, p.kustomization) && (definition || p.kustomization.Waits())
	})
}

// within reports whether a Kustomization is the outer one, or is declared below it.
func within(k, outer *gitops.Kustomization) bool {
	for k != nil && k != outer {
		k = k.Parent
	}
	return k == outer
}

// dependsOn is the field with which a Kustomization waits for a provider's.
func dependsOn(k *gitops.Kustomization, p provider) string {
	on := p.kustomization.Key
	if on.Namespace != k.Key.Namespace {
		return fmt.Sprintf("dependsOn: %s in namespace %s", on.Name, on.Namespace)
	}
	return "dependsOn: " + on.Name
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
			all = append(all, xslices.Filter(r.kustomizations, func(child *gitops.Kustomization) bool {
				return child.Parent == d && d.Wait
			})...)
			add(d)
		}
		if k.Parent != nil {
			add(k.Parent)
		}
	}
	add(k)
	return all
}
