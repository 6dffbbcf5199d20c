package kube

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/ephemeral-castle/castle/internal/gate"
)

// lookAtFlux is the command that shows what Flux says of everything.
const lookAtFlux = "kubectl get -A kustomizations.kustomize.toolkit.fluxcd.io,helmreleases.helm.toolkit.fluxcd.io,gitrepositories.source.toolkit.fluxcd.io"

// flux explains a repository that does not come through: the object that
// everything else waits for, then what that one itself waits for.
func (q *inquiry) flux(ctx context.Context, v gate.Values) {
	f := convergence{namespace: v.String("namespace")}
	if err := v.Decode("names", &f.names); err != nil {
		return
	}
	appliers, err := f.appliers(ctx, q.a)
	if absent := (notServed{}); errors.As(err, &absent) {
		q.unserved(ctx, absent)
	}
	if err != nil {
		q.miss("Flux' objects", err)
		q.controllers(ctx)
		return
	}
	var waiting []*unstructured.Unstructured
	for i := range appliers {
		object := &appliers[i]
		if why, _ := unsettled(object); why != "" {
			waiting = append(waiting, object)
			q.object(object)
			q.events(ctx, object.GetNamespace())
		}
	}
	known := byReference(appliers)
	for _, object := range waiting {
		if at, chain := root(object, known); at != nil {
			q.cornerstone(ctx, at, chain)
		}
	}
	for i := range appliers {
		q.source(ctx, &appliers[i])
	}
	q.controllers(ctx)
}

func byReference(objects []unstructured.Unstructured) map[reference]*unstructured.Unstructured {
	known := map[reference]*unstructured.Unstructured{}
	for i := range objects {
		o := &objects[i]
		known[reference{o.GetKind(), o.GetNamespace(), o.GetName()}] = o
	}
	return known
}

// root follows what an object depends on to the one that waits for nobody else,
// and says by which way. Without one, the chain is a circle.
func root(object *unstructured.Unstructured, known map[reference]*unstructured.Unstructured) (*unstructured.Unstructured, []string) {
	chain := []string{title(object)}
	for {
		next := blocker(object, known)
		switch {
		case next == nil:
			return object, chain
		case slices.Contains(chain, title(next)):
			return nil, nil
		}
		object, chain = next, append(chain, title(next))
	}
}

// blocker is the first object that another depends on and that is not settled.
func blocker(object *unstructured.Unstructured, known map[reference]*unstructured.Unstructured) *unstructured.Unstructured {
	needs, _, err := unstructured.NestedSlice(object.Object, "spec", "dependsOn")
	if err != nil {
		return nil
	}
	for _, need := range needs {
		fields, _ := need.(map[string]any)
		name, _ := fields["name"].(string)
		namespace, _ := fields["namespace"].(string)
		if namespace == "" {
			namespace = object.GetNamespace()
		}
		next := known[reference{object.GetKind(), namespace, name}]
		if next == nil {
			continue
		}
		if why, _ := unsettled(next); why != "" {
			return next
		}
	}
	return nil
}

// cornerstone explains the object at the end of a chain.
func (q *inquiry) cornerstone(ctx context.Context, object *unstructured.Unstructured, chain []string) {
	look := describe(object.GetKind(), object.GetNamespace(), object.GetName())
	why, consequence := unsettled(object)
	if strings.HasPrefix(why, "is suspended") {
		q.because(title(object)+" is suspended", fmt.Sprintf("kubectl -n %s patch %s %s --type merge -p '{\"spec\":{\"suspend\":false}}'",
			object.GetNamespace(), strings.ToLower(object.GetKind()), object.GetName()))
		return
	}
	q.source(ctx, object)
	for _, s := range unhealthy(why) {
		in, _ := workloadResource(s.kind)
		q.workload(ctx, selection{in: in, namespace: s.namespace, name: s.name}, s.kind)
	}
	if namespace := text(object, "spec", "targetNamespace"); object.GetKind() == "HelmRelease" {
		if namespace == "" {
			namespace = object.GetNamespace()
		}
		q.pods(ctx, namespace, "app.kubernetes.io/instance="+object.GetName())
	}
	switch {
	case consequence && len(chain) == 1:
		q.because(fmt.Sprintf("%s waits for what it depends on although that is ready: it is not looked at again before its interval has passed", title(object)), look)
	case len(chain) > 1:
		q.because(fmt.Sprintf("%s holds up %s: %s", title(object), strings.Join(chain[:len(chain)-1], ", "), why), look)
	}
	q.because(title(object)+": "+why, look)
}

// unhealthy reads the workloads out of "timeout waiting for: [Deployment/a/b status: 'InProgress']".
func unhealthy(why string) []reference {
	var all []reference
	for _, found := range regexp.MustCompile(`\b(Deployment|DaemonSet|StatefulSet)/([a-z0-9.-]+)/([a-z0-9.-]+)`).FindAllStringSubmatch(why, most) {
		all = append(all, reference{found[1], found[2], found[3]})
	}
	return all
}

// source explains where an object comes from, if that is what is wrong.
func (q *inquiry) source(ctx context.Context, object *unstructured.Unstructured) {
	ref, ok := sourceOf(object)
	if !ok {
		return
	}
	r, err := q.a.resolveIn(ctx, sourceGroup, ref.kind)
	if err != nil {
		q.miss(titled(ref.kind, ref.namespace, ref.name), err)
		return
	}
	from, err := q.a.get(ctx, r.GroupVersionResource, ref.namespace, ref.name)
	switch {
	case apierrors.IsNotFound(err):
		q.because(fmt.Sprintf("%s does not exist, and %s comes from it", titled(ref.kind, ref.namespace, ref.name), title(object)))
		return
	case err != nil:
		q.miss(titled(ref.kind, ref.namespace, ref.name), err)
		return
	}
	q.object(from)
	if why, _ := unsettled(from); why != "" && (ref.kind != "HelmRepository" || text(from, "spec", "type") != "oci") {
		q.because(title(from)+": "+why, describe(ref.kind, ref.namespace, ref.name))
	}
}

// controllers looks at Flux' own Pods, whose logs tell the rest.
func (q *inquiry) controllers(ctx context.Context) {
	q.pods(ctx, "", "app.kubernetes.io/part-of=flux")
}
