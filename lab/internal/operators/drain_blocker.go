package operators

import (
	"cmp"
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/ephemeral-castle/castle/lab/internal/operators/cluster"
)

// blockedLabel marks the Pod that the fault drain-blocked protects, and the one that waits beside it.
const (
	blockedLabel = "lab.castle/drain-blocked"
	blockedName  = "drain-blocked"
)

// drainBlocker is the fault drain-blocked: a PodDisruptionBudget on a Pod of a worker allows no eviction. It
// is there before anybody drains the node, and goes that long after the first eviction was refused. A second
// Pod under the budget never starts, so that the budget could be met: it lacks one Pod, and not for ever.
type drainBlocker struct {
	w     *cluster.View
	fault *cluster.Fault
	since time.Time
}

func (b *drainBlocker) Close() {}

func (b *drainBlocker) Look(ctx context.Context) error {
	if !b.w.Asked(blockedName) {
		return nil
	}
	if b.w.Faults.Times[blockedName] == 0 || b.fault != nil && !b.fault.Comes() {
		return b.remove(ctx, "")
	}
	victim, err := b.victim(ctx)
	if err != nil || victim == nil {
		return err
	}
	if b.fault == nil {
		b.fault, b.since = b.w.Fault(blockedName, "/pods/"+victim.Name+"/eviction"), b.w.Now()
	}
	if b.fault.Met(b.since) && !b.fault.Holds() {
		return b.remove(ctx, "")
	}
	return b.protect(ctx, victim)
}

// victim returns the protected Pod; nil if no Pod can be. It is the first one of the first worker that a
// controller starts again and no budget protects.
func (b *drainBlocker) victim(ctx context.Context) (*corev1.Pod, error) {
	pods, err := b.w.Typed.CoreV1().Pods("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	budgets, err := b.w.Typed.PolicyV1().PodDisruptionBudgets("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	nodes, err := b.w.Typed.CoreV1().Nodes().List(ctx,
		metav1.ListOptions{LabelSelector: "!node-role.kubernetes.io/control-plane"})
	if err != nil {
		return nil, err
	}
	isWorker := map[string]bool{}
	for _, n := range nodes.Items {
		isWorker[n.Name] = true
	}
	slices.SortFunc(pods.Items, func(a, b corev1.Pod) int {
		return cmp.Or(cmp.Compare(a.Spec.NodeName, b.Spec.NodeName), cmp.Compare(a.Namespace, b.Namespace),
			cmp.Compare(a.Name, b.Name))
	})
	var first *corev1.Pod
	for i, p := range pods.Items {
		owner := metav1.GetControllerOf(&p)
		if owner == nil || owner.Kind != "ReplicaSet" && owner.Kind != "StatefulSet" || !podReady(&p) ||
			p.DeletionTimestamp != nil || !isWorker[p.Spec.NodeName] {
			continue
		}
		if p.Labels[blockedLabel] != "" {
			return &pods.Items[i], nil
		}
		if first == nil && !slices.ContainsFunc(budgets.Items, func(one policyv1.PodDisruptionBudget) bool {
			selector, err := metav1.LabelSelectorAsSelector(one.Spec.Selector)
			return err == nil && one.Namespace == p.Namespace && selector.Matches(labels.Set(p.Labels))
		}) {
			first = &pods.Items[i]
		}
	}
	if first != nil {
		b.fault = nil // it is about another Pod
	}
	return first, nil
}

// protect makes the budget and its second Pod beside a Pod, and then labels the Pod.
func (b *drainBlocker) protect(ctx context.Context, victim *corev1.Pod) error {
	if victim.Labels[blockedLabel] != "" {
		return nil
	}
	if err := b.remove(ctx, victim.Namespace); err != nil {
		return err
	}
	one, own := intstr.FromInt32(1), map[string]string{blockedLabel: "true"}
	at := metav1.ObjectMeta{Namespace: victim.Namespace, Name: blockedName, Labels: own}
	_, err := b.w.Typed.CoreV1().Pods(victim.Namespace).Create(ctx, &corev1.Pod{ObjectMeta: at,
		Spec: corev1.PodSpec{SchedulerName: blockedName, // nobody schedules it
			Containers: []corev1.Container{{Name: "waits", Image: "registry.k8s.io/pause:3.10"}}},
	}, metav1.CreateOptions{})
	if err := cluster.Unless(err, apierrors.IsAlreadyExists); err != nil {
		return err
	}
	_, err = b.w.Typed.PolicyV1().PodDisruptionBudgets(victim.Namespace).Create(ctx,
		&policyv1.PodDisruptionBudget{ObjectMeta: at, Spec: policyv1.PodDisruptionBudgetSpec{
			MinAvailable: &one, Selector: &metav1.LabelSelector{MatchLabels: own}}}, metav1.CreateOptions{})
	if err := cluster.Unless(err, apierrors.IsAlreadyExists); err != nil {
		return err
	}
	_, err = b.w.Typed.CoreV1().Pods(victim.Namespace).Patch(ctx, victim.Name, types.MergePatchType,
		[]byte(`{"metadata":{"labels":{"`+blockedLabel+`":"true"}}}`), metav1.PatchOptions{})
	return cluster.Unless(err, apierrors.IsNotFound)
}

// remove deletes the budgets of the fault and their second Pods, except those of a namespace.
func (b *drainBlocker) remove(ctx context.Context, except string) error {
	budgets, err := b.w.Typed.PolicyV1().PodDisruptionBudgets("").List(ctx,
		metav1.ListOptions{LabelSelector: blockedLabel})
	if err != nil {
		return err
	}
	for _, one := range budgets.Items {
		if one.Namespace == except {
			continue
		}
		for _, err := range []error{
			b.w.Typed.CoreV1().Pods(one.Namespace).Delete(ctx, blockedName, metav1.DeleteOptions{}),
			b.w.Typed.PolicyV1().PodDisruptionBudgets(one.Namespace).Delete(ctx, blockedName,
				metav1.DeleteOptions{}),
		} {
			if err := cluster.Unless(err, apierrors.IsNotFound); err != nil {
				return err
			}
		}
	}
	return nil
}
