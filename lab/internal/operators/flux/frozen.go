package flux

import (
	"github.com/ephemeral-castle/castle/lab/internal/operators/cluster"
)

import "k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

// requested is the annotation that triggers a reconcile in Flux.
const requested = "reconcile.fluxcd.io/requestedAt"

// handled writes the handled reconcile request into a status, as Flux does.
func handled(status map[string]any, object *unstructured.Unstructured) {
	if at := object.GetAnnotations()[requested]; at != "" {
		status["lastHandledReconcileAt"] = at
	}
}

// frozen is a Kustomization whose dependency has become ready without its
// noticing: the fault kustomization-frozen. It is the first that gets so far.
type frozen struct {
	who     string
	request string // the last one before it froze
}

// freeze returns the obstacle that a frozen Kustomization still reports, until a reconcile request
// arrives.
func (f *flux) freeze(k *unstructured.Unstructured) *obstacle {
	needs, _, err := unstructured.NestedSlice(k.Object, "spec", "dependsOn")
	if f.frozen == nil || err != nil || len(needs) == 0 {
		return nil
	}
	request := k.GetAnnotations()[requested]
	if f.frozen.who == "" {
		f.frozen.who, f.frozen.request = k.GetName(), request
		f.w.Tell("kustomization-frozen", false)
	}
	if f.frozen.who != k.GetName() {
		return nil
	}
	if f.frozen.request == request {
		one, _ := needs[0].(map[string]any)
		return notReady(k.GetNamespace(), cluster.Text(one, "name"))
	}
	f.frozen = nil
	f.w.Tell("kustomization-frozen", true)
	return nil
}

func notReady(namespace, name string) *obstacle {
	return &obstacle{"DependencyNotReady", "dependency '" + namespace + "/" + name + "' is not ready"}
}
