package kube

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/ephemeral-castle/castle/internal/gate"
)

func lookAtWorkload(v gate.Values) string {
	return describe(v.String("kind"), v.String("namespace"), v.String("name"))
}

// rollout explains the workload of a gate.
func (q *inquiry) rollout(ctx context.Context, v gate.Values) {
	kind := v.String("kind")
	in, _ := workloadResource(kind)
	q.workload(ctx, selection{in: in, namespace: v.String("namespace"), name: v.String("name")}, kind)
}

// workload explains a Deployment, DaemonSet, StatefulSet or Job: what it says
// itself, what its controllers could not make, and its Pods.
func (q *inquiry) workload(ctx context.Context, s selection, kind string) {
	object, sure := q.get(ctx, s, kind)
	if object == nil {
		if sure {
			q.absent(ctx, kind, s.namespace, s.name, unmade)
		}
		return
	}
	events := q.events(ctx, s.namespace)
	q.because(uncreated(title(object), events, kind, s.name))
	if selector, ok := selectorOf(object, "spec", "selector"); ok {
		q.pods(ctx, s.namespace, selector)
	}
	if kind == "DaemonSet" && number(object, 0, "status", "desiredNumberScheduled") == 0 {
		q.because(q.nowhere(ctx, object))
	}
	q.because(idle(object))
}

// selectorOf reads a label selector in an object.
func selectorOf(object *unstructured.Unstructured, path ...string) (string, bool) {
	fields, found, err := unstructured.NestedMap(object.Object, path...)
	if err != nil || !found || len(fields) == 0 {
		return "", false
	}
	var typed metav1.LabelSelector
	if runtime.DefaultUnstructuredConverter.FromUnstructured(fields, &typed) != nil {
		return "", false
	}
	selector, err := metav1.LabelSelectorAsSelector(&typed)
	if err != nil || selector.Empty() {
		return "", false
	}
	return selector.String(), true
}

// refusals are what the API answers to a controller that may not make a Pod.
func refusals() []struct{ sign, cause string } {
	return []struct{ sign, cause string }{
		{"violates PodSecurity", "the namespace's Pod Security level forbids its Pods"},
		{"exceeded quota", "the namespace's quota is used up"},
		{"serviceaccount", "its ServiceAccount does not exist"},
		{"failed calling webhook", "an admission webhook in the way does not answer"},
		{"denied the request", "an admission webhook denies its Pods"},
		{"no PriorityClass", "its PriorityClass does not exist"},
		{"limitrange", "the namespace's LimitRange forbids its Pods"},
	}
}

// uncreated says why a workload's controller cannot make its Pods. A Deployment
// leaves that to its ReplicaSets.
func uncreated(what string, events []happening, kind, name string) string {
	for i := len(events) - 1; i >= 0; i-- {
		e := events[i]
		own := e.kind == kind && e.name == name || kind == "Deployment" && e.kind == "ReplicaSet" && strings.HasPrefix(e.name, name+"-")
		if !own || e.reason != "FailedCreate" {
			continue
		}
		for _, r := range refusals() {
			if strings.Contains(strings.ToLower(e.message), strings.ToLower(r.sign)) {
				return fmt.Sprintf("%s: %s: %s", what, r.cause, brief(e.message))
			}
		}
		return fmt.Sprintf("%s: its Pods cannot be made: %s", what, brief(e.message))
	}
	return ""
}

// nowhere says why a DaemonSet is meant for no node.
func (q *inquiry) nowhere(ctx context.Context, set *unstructured.Unstructured) string {
	if _, seen := observed(set); !seen {
		return ""
	}
	spec, _, err := unstructured.NestedMap(set.Object, "spec", "template", "spec")
	var pod corev1.PodSpec
	if err != nil || runtime.DefaultUnstructuredConverter.FromUnstructured(spec, &pod) != nil {
		return ""
	}
	var matching, tainted []string
	nodes := q.nodes(ctx)
	for _, node := range nodes {
		if !labels.SelectorFromSet(pod.NodeSelector).Matches(labels.Set(node.Labels)) {
			continue
		}
		matching = append(matching, node.Name)
		if taint := untolerated(node.Spec.Taints, pod.Tolerations); taint != "" {
			tainted = append(tainted, node.Name+" ("+taint+")")
		}
	}
	what := title(set)
	switch {
	case len(nodes) == 0:
		return what + ": there is no node"
	case len(matching) == 0:
		return fmt.Sprintf("%s: no node has the labels that its nodeSelector asks for: %s", what, labels.Set(pod.NodeSelector))
	case len(tainted) == len(matching):
		return fmt.Sprintf("%s: every node that it is meant for has a taint that its Pods do not tolerate: %s", what, several(tainted))
	}
	return what + ": no node matches its nodeSelector and affinity"
}

// untolerated is the first taint that keeps Pods with these tolerations away.
func untolerated(taints []corev1.Taint, tolerations []corev1.Toleration) string {
next:
	for _, taint := range taints {
		if taint.Effect == corev1.TaintEffectPreferNoSchedule {
			continue
		}
		for _, t := range tolerations {
			sameValue := t.Operator == corev1.TolerationOpExists || t.Value == taint.Value
			if (t.Key == "" || t.Key == taint.Key) && (t.Effect == "" || t.Effect == taint.Effect) && sameValue {
				continue next
			}
		}
		return taint.Key + ":" + string(taint.Effect)
	}
	return ""
}

// idle says why a workload that exists asks for nothing.
func idle(object *unstructured.Unstructured) string {
	what := title(object)
	paused, _, err := unstructured.NestedBool(object.Object, "spec", "paused")
	suspended, _, suspendErr := unstructured.NestedBool(object.Object, "spec", "suspend")
	progress, _ := stateOf(object, "Progressing")
	_, seen := observed(object)
	switch {
	case object.GetDeletionTimestamp() != nil:
		return fmt.Sprintf("%s is being deleted and waits for its finalizers: %s", what, strings.Join(object.GetFinalizers(), ", "))
	case suspendErr == nil && suspended:
		return what + " is suspended"
	case err == nil && paused:
		return what + " is paused: its last change is not rolled out"
	case number(object, 1, "spec", "replicas") == 0:
		return what + " is scaled to 0"
	case !seen && object.GetKind() != "Job":
		return what + " was not looked at by its controller yet: kube-controller-manager may be down"
	case progress.Status == "False":
		return what + ": " + progress.why()
	}
	return ""
}

// templateLabels are the labels that a workload's Pods get.
func templateLabels(object *unstructured.Unstructured) labels.Set {
	set, _, err := unstructured.NestedStringMap(object.Object, "spec", "template", "metadata", "labels")
	if err != nil {
		return nil
	}
	return set
}
