package diagnose

import (
	"cmp"
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/kube/client"
	"github.com/ephemeral-castle/castle/internal/kube/gates"
)

// lookAtFlux is the command that shows the status of all of Flux' objects.
const lookAtFlux = "kubectl get -A kustomizations.kustomize.toolkit.fluxcd.io," +
	"helmreleases.helm.toolkit.fluxcd.io,gitrepositories.source.toolkit.fluxcd.io"

type fluxObjects map[gates.Reference]*client.Object

// collectFlux explains a repository that does not converge: the object for which all others wait, then the
// dependency of that one.
func collectFlux(ctx context.Context, d *diagnosis, v gate.Values, found error) {
	f, err := gates.NewFlux(v)
	if err != nil {
		return
	}
	defer d.pods(ctx, "", "app.kubernetes.io/part-of=flux", nil) // Flux' own Pods, for their logs
	appliers, err := f.Appliers(ctx, d.api)
	if err != nil {
		d.conclude(ctx, found)
		d.evidence.miss("Flux' objects", err)
		return
	}
	all := fluxObjects{}
	for i := range appliers {
		all[gates.ReferenceTo(&appliers[i])] = &appliers[i]
	}
	var waiting []*client.Object
	for i := range appliers {
		if why, _ := gates.Unsettled(&appliers[i]); why != "" {
			waiting = append(waiting, &appliers[i])
			d.evidence.object(&appliers[i])
			d.evidence.eventsIn(ctx, appliers[i].GetNamespace())
		}
	}
	for _, object := range waiting {
		if root, chain := all.root(object); root != nil {
			d.fluxRoot(ctx, root, chain)
		}
	}
	for i := range appliers {
		d.fluxSource(ctx, &appliers[i])
	}
}

// root follows the dependencies of an object to the one that waits for no other, and returns the way.
// Dependencies that form a cycle have no root.
func (all fluxObjects) root(object *client.Object) (*client.Object, []string) {
	chain := []string{client.Title(object)}
	for {
		next := all.blocker(object)
		switch {
		case next == nil:
			return object, chain
		case slices.Contains(chain, client.Title(next)):
			return nil, nil
		}
		object, chain = next, append(chain, client.Title(next))
	}
}

// blocker is the first dependency of an object that is not settled.
func (all fluxObjects) blocker(object *client.Object) *client.Object {
	needs, err := gates.Dependencies(object)
	if err != nil {
		return nil
	}
	for _, need := range needs {
		if next := all[need]; next != nil {
			if why, _ := gates.Unsettled(next); why != "" {
				return next
			}
		}
	}
	return nil
}

// fluxRoot explains the object at the end of a chain.
func (d *diagnosis) fluxRoot(ctx context.Context, object *client.Object, chain []string) {
	what, kind, namespace := client.Title(object), object.GetKind(), object.GetNamespace()
	if client.True(object, "spec", "suspend") {
		d.because(what+" is suspended", fmt.Sprintf("kubectl -n %s patch %s %s --type merge -p "+
			"'{\"spec\":{\"suspend\":false}}'",
			namespace, strings.ToLower(kind), object.GetName()))
		return
	}
	d.fluxSource(ctx, object)
	why, waits := gates.Unsettled(object)
	for _, w := range workloadPattern.FindAllStringSubmatch(why, client.Most) {
		d.workload(ctx, w[1], w[2], w[3])
	}
	if kind == "HelmRelease" {
		release := cmp.Or(client.Text(object, "spec", "targetNamespace"), namespace)
		d.pods(ctx, release, "app.kubernetes.io/instance="+object.GetName(), nil)
	}
	cause := what + ": " + why
	switch {
	case waits && len(chain) == 1:
		cause = what + " waits for its dependencies although they are ready: Flux checks it again only " +
			"after its interval"
	case len(chain) > 1:
		cause = fmt.Sprintf("%s blocks %s: %s", what, strings.Join(chain[:len(chain)-1], ", "), why)
	}
	d.because(cause, describe(kind, namespace, object.GetName()))
}

// workloadPattern matches the workloads in "timeout waiting for: [Deployment/a/b status: 'InProgress']".
var workloadPattern = regexp.MustCompile(`\b(Deployment|DaemonSet|StatefulSet)/([a-z0-9.-]+)/([a-z0-9.-]+)`)

// fluxSource explains the source of an object, if that is not settled.
func (d *diagnosis) fluxSource(ctx context.Context, object *client.Object) {
	ref, ok := gates.SourceOf(object)
	if !ok {
		return
	}
	what := client.Titled(ref.Kind, ref.Namespace, ref.Name)
	from, err := gates.GetSource(ctx, d.api, ref)
	switch {
	case gate.KindOf(err) == gate.NotFound:
		d.because(fmt.Sprintf("%s does not exist, and %s needs it", what, client.Title(object)))
		return
	case err != nil:
		d.evidence.miss(what, err)
		return
	}
	d.evidence.object(from)
	if why, _ := gates.SourceUnsettled(from); why != "" {
		d.because(what+": "+why, describe(ref.Kind, ref.Namespace, ref.Name))
	}
}
