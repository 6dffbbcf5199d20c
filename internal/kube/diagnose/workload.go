package diagnose

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/klog/v2"

	"github.com/ephemeral-castle/castle/internal/kube/client"
	"github.com/ephemeral-castle/castle/internal/kube/gates"
)

// workload explains a Deployment, DaemonSet, StatefulSet or Job: the objects that its controllers could not
// create, its Pods, and its own status.
func (d *diagnosis) workload(ctx context.Context, kind, namespace, name string) {
	object := d.get(ctx, gates.WorkloadSelection(kind, namespace, name), kind)
	if object == nil {
		return
	}
	d.because(uncreated(client.Title(object), d.evidence.eventsIn(ctx, namespace), kind, name))
	if selector := selectorOf(object); selector != "" {
		d.pods(ctx, namespace, selector, nil)
	}
	if _, seen := client.Observed(object); kind == "DaemonSet" && seen &&
		client.Number(object, 0, "status", "desiredNumberScheduled") == 0 {
		d.because(d.unplaced(ctx, object))
	}
	d.because(noProgress(object, "Progressing"))
}

// selectorOf reads the label selector of a workload; empty if it has none.
func selectorOf(object *client.Object) string {
	fields, found, err := unstructured.NestedMap(object.Object, "spec", "selector")
	var typed metav1.LabelSelector
	if err != nil || !found || runtime.DefaultUnstructuredConverter.FromUnstructured(fields, &typed) != nil {
		return ""
	}
	selector, err := metav1.LabelSelectorAsSelector(&typed)
	if err != nil || selector.Empty() {
		return ""
	}
	return selector.String()
}

// uncreated explains why a workload's controller cannot create its Pods. A Deployment leaves that to its
// ReplicaSets.
func uncreated(what string, events []corev1.Event, kind, name string) string {
	for _, e := range slices.Backward(events) {
		of := e.InvolvedObject
		own := of.Kind == kind && of.Name == name ||
			kind == "Deployment" && of.Kind == "ReplicaSet" && strings.HasPrefix(of.Name, name+"-")
		if own && e.Reason == "FailedCreate" {
			return fmt.Sprintf("%s: %s: %s", what, creation.cause(strings.ToLower(e.Message)),
				client.Brief(e.Message))
		}
	}
	return ""
}

// unplaced explains why a DaemonSet matches no node.
func (d *diagnosis) unplaced(ctx context.Context, set *client.Object) string {
	spec, _, err := unstructured.NestedMap(set.Object, "spec", "template", "spec")
	var pod corev1.PodSpec
	if err != nil || runtime.DefaultUnstructuredConverter.FromUnstructured(spec, &pod) != nil {
		return ""
	}
	var matching, tainted []string
	nodes := d.evidence.nodes(ctx)
	for _, n := range nodes {
		if !labels.SelectorFromSet(pod.NodeSelector).Matches(labels.Set(n.Labels)) {
			continue
		}
		matching = append(matching, n.Name)
		if taint := untolerated(n.Spec.Taints, pod.Tolerations); taint != "" {
			tainted = append(tainted, n.Name+" ("+taint+")")
		}
	}
	what := client.Title(set)
	switch {
	case len(nodes) == 0:
		return what + ": there is no node"
	case len(matching) == 0:
		return fmt.Sprintf("%s: no node has the labels of its nodeSelector: %s", what,
			labels.Set(pod.NodeSelector))
	case len(tainted) == len(matching):
		return fmt.Sprintf("%s: every node that it selects has a taint that its Pods do not tolerate: %s",
			what, client.Several(tainted))
	}
	return what + ": no node matches its nodeSelector and affinity"
}

// untolerated is the first taint that keeps Pods with these tolerations away.
func untolerated(taints []corev1.Taint, tolerations []corev1.Toleration) string {
	for _, taint := range taints {
		tolerated := slices.ContainsFunc(tolerations,
			func(t corev1.Toleration) bool { return t.ToleratesTaint(klog.Background(), &taint, false) })
		if !tolerated && taint.Effect != corev1.TaintEffectPreferNoSchedule {
			return taint.Key + ":" + string(taint.Effect)
		}
	}
	return ""
}
