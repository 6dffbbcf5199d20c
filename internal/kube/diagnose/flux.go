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

// collectFlux explains a repository that does not converge: what all wait for, then its dependency.
func collectFlux(ctx context.Context, d *diagnosis, v gate.Values, _ error) {
	defer d.pods(ctx, "", "app.kubernetes.io/part-of=flux", nil) // Flux' own Pods, for their logs
	f, err := gates.NewFlux(v)
	if err != nil {
		return
	}
	objects, err := f.Objects(ctx, d.api)
	if err != nil {
		d.conclude(ctx, err)
		return
	}
	for _, o := range objects {
		if o.Finding != nil {
			d.evidence.object(o.Object)
			d.evidence.eventsIn(ctx, o.Object.GetNamespace())
		}
	}
	for _, o := range objects {
		if o.Finding != nil {
			d.fluxRoot(ctx, o)
		}
	}
	for _, o := range objects {
		d.fluxSource(o)
	}
}

// fluxRoot follows the dependencies of an object to the one that waits for no other, and explains that.
// Dependencies that form a cycle have no root.
func (d *diagnosis) fluxRoot(ctx context.Context, o *gates.FluxObject) {
	var chain []string
	for next := o; next != nil; {
		o = next
		if slices.Contains(chain, client.Title(o.Object)) {
			return
		}
		chain = append(chain, client.Title(o.Object))
		blocks := func(need *gates.FluxObject) bool { return need != nil && need.Finding != nil }
		next = nil
		if i := slices.IndexFunc(o.Needs, blocks); i >= 0 {
			next = o.Needs[i]
		}
	}
	ref, found := client.ReferenceTo(o.Object), o.Finding
	if found.Kind == gates.Suspended {
		d.because(ref.String()+" is suspended", fmt.Sprintf("kubectl -n %s patch %s %s --type merge -p "+
			"'{\"spec\":{\"suspend\":false}}'", ref.Namespace, strings.ToLower(ref.Kind), ref.Name))
		return
	}
	d.fluxSource(o)
	for _, w := range workloadPattern.FindAllStringSubmatch(found.Text, client.Most) {
		d.workload(ctx, w[1], w[2], w[3])
	}
	if ref.Kind == "HelmRelease" {
		release := cmp.Or(client.Text(o.Object, "spec", "targetNamespace"), ref.Namespace)
		d.pods(ctx, release, "app.kubernetes.io/instance="+ref.Name, nil)
	}
	cause := found.Error()
	switch {
	case found.Kind == gate.Waits && len(chain) == 1:
		cause = ref.String() + " waits for its dependencies although they are ready: Flux checks it again " +
			"only after its interval"
	case len(chain) > 1:
		cause = fmt.Sprintf("%s blocks %s: %s", ref, strings.Join(chain[:len(chain)-1], ", "), found.Text)
	}
	d.because(cause, describe(ref.Kind, ref.Namespace, ref.Name))
}

// workloadPattern matches the workloads in "timeout waiting for: [Deployment/a/b status: 'InProgress']".
var workloadPattern = regexp.MustCompile(`\b(Deployment|DaemonSet|StatefulSet)/([a-z0-9.-]+)/([a-z0-9.-]+)`)

// fluxSource explains the source of an object, if that is not settled.
func (d *diagnosis) fluxSource(o *gates.FluxObject) {
	switch found := o.Source.Finding; {
	case found == nil:
	case o.Source.Object != nil:
		source := o.Source.Object
		d.evidence.object(source)
		d.because(found.Error(), describe(source.GetKind(), source.GetNamespace(), source.GetName()))
	default:
		d.because(fmt.Sprintf("%s does not exist, and %s needs it", found.Object, client.Title(o.Object)))
	}
}
