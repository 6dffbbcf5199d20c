package flux

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/ephemeral-castle/castle/lab/internal/operators/cluster"
)

// report writes the status that change makes of an object's, and records an event when its Ready condition
// has become another one: flux events lists them.
func report(ctx context.Context, w *cluster.View, in schema.GroupVersionResource,
	o *unstructured.Unstructured, change func(status map[string]any)) error {
	now := map[string]any{}
	err := w.SetStatus(ctx, in, o, func(status map[string]any) {
		change(status)
		now["status"] = status
	})
	ready, reason, message := cluster.ConditionOf(now, "Ready"), cluster.OfCondition(now, "Ready", "reason"),
		cluster.MessageOf(now, "Ready")
	if err != nil || ready == "Unknown" || ready == "" || reason+message ==
		cluster.OfCondition(o.Object, "Ready", "reason")+cluster.MessageOf(o.Object, "Ready") {
		return err
	}
	component := map[string]string{"Kustomization": "kustomize-controller",
		"HelmRelease": "helm-controller"}[o.GetKind()]
	record := w.Inform
	if ready == "False" && reason != "DependencyNotReady" {
		record = w.Warn
	}
	return record(ctx, corev1.ObjectReference{APIVersion: o.GetAPIVersion(), Kind: o.GetKind(),
		Namespace: o.GetNamespace(), Name: o.GetName(), UID: o.GetUID()},
		firstOf(component, "source-controller"), reason, message)
}
