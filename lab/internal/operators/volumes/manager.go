package volumes

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/ephemeral-castle/castle/lab/internal/operators/cluster"
)

// component is the label by which Longhorn's Pods are known.
const component = "longhorn.io/component"

// managerOf is the name of a node's instance manager: of the object, its Pod and its budget. Outside it ends
// in a digest.
func managerOf(node string) string { return "instance-manager-" + node }

func managerLabels(node string) map[string]string {
	return map[string]string{
		"longhorn.io/managed-by": "longhorn-manager", component: "instance-manager",
		"longhorn.io/instance-manager-type": "aio", "longhorn.io/node": node, "longhorn.io/data-engine": "v1",
	}
}

// manage keeps the instance manager of a node running. The Pod of an earlier run of the machine is replaced.
// On a cordoned node it starts none (instance_manager_controller.go, handlePod).
func (s *state) manage(ctx context.Context, h *host) error {
	if h.kube == nil {
		return nil
	}
	own, err := s.instanceManager(ctx, h)
	if err != nil {
		return err
	}
	pods := s.w.Typed.CoreV1().Pods(s.namespace)
	switch {
	case !h.up():
	case h.manager != nil && h.manager.Annotations[stopped] != h.boot():
		now := int64(0)
		err = cluster.Unless(pods.Delete(ctx, h.manager.Name, metav1.DeleteOptions{GracePeriodSeconds: &now}),
			apierrors.IsNotFound)
	case h.manager == nil && !h.cordoned():
		_, err = pods.Create(ctx, s.managerPod(h, own), metav1.CreateOptions{})
		err = cluster.Unless(err, apierrors.IsAlreadyExists)
	}
	if err != nil {
		return err
	}
	return s.w.SetStatus(ctx, Resource("instancemanagers"), own, func(status map[string]any) {
		current := "starting"
		switch {
		case h.runs():
			current = "running"
		case !h.up():
			current = "unknown"
		case h.manager == nil && h.cordoned():
			current = "stopped"
		}
		status["currentState"], status["ownerID"] = current, h.name()
		engines := map[string]any{}
		for _, v := range s.volumes {
			if v.Status.CurrentNodeID == h.name() {
				engines[engineOf(v.Name)] = map[string]any{"status": map[string]any{"state": "running"}}
			}
		}
		status["instanceEngines"] = engines
	})
}

// instanceManager returns the object of a node, which it makes if it is missing.
func (s *state) instanceManager(ctx context.Context, h *host) (*unstructured.Unstructured, error) {
	labels := map[string]any{}
	for key, value := range managerLabels(h.name()) {
		labels[key] = value
	}
	for _, have := range s.managers {
		if have.GetName() == managerOf(h.name()) {
			return &have, nil
		}
	}
	api := s.w.Untyped.Resource(Resource("instancemanagers")).Namespace(s.namespace)
	return api.Create(ctx, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": apiVersion, "kind": "InstanceManager",
		"metadata": map[string]any{"name": managerOf(h.name()), "namespace": s.namespace, "labels": labels,
			// It ends with Longhorn's node (webhook/resources/instancemanager/mutator.go).
			"ownerReferences": []any{map[string]any{"apiVersion": apiVersion, "kind": "Node",
				"name": h.name(), "uid": string(h.node.GetUID())}}},
		"spec": map[string]any{"nodeID": h.name(), "type": "aio", "dataEngine": "v1"},
	}}, metav1.CreateOptions{})
}

func (s *state) managerPod(h *host, own *unstructured.Unstructured) *corev1.Pod {
	yes := true
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: managerOf(h.name()), Namespace: s.namespace, Labels: managerLabels(h.name()),
			Annotations: map[string]string{"lab.castle/ready-after": s.w.Delay(managerReady),
				stopped: h.boot()},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: apiVersion, Kind: "InstanceManager",
				Name: own.GetName(), UID: own.GetUID(), Controller: &yes, BlockOwnerDeletion: &yes}},
		},
		Spec: corev1.PodSpec{
			NodeName: h.name(), ServiceAccountName: "longhorn-service-account",
			PriorityClassName: "longhorn-critical",
			Containers: []corev1.Container{{Name: "instance-manager",
				Image: "docker.io/longhornio/longhorn-instance-manager"}},
		},
	}
}

// protect keeps the budget of a node's instance manager, and deletes it while the node is cordoned and may be
// drained (instance_manager_controller.go, syncInstanceManagerPDB).
func (s *state) protect(ctx context.Context, h *host) error {
	budgets := s.w.Typed.PolicyV1().PodDisruptionBudgets(s.namespace)
	switch {
	case h.cordoned() && h.budget != nil && s.keeps(h) == "":
		return cluster.Unless(budgets.Delete(ctx, h.budget.Name, metav1.DeleteOptions{}),
			apierrors.IsNotFound)
	case h.cordoned() || h.budget != nil || !h.runs():
		return nil
	}
	one := intstr.FromInt32(1)
	_, err := budgets.Create(ctx, &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: managerOf(h.name()), Namespace: s.namespace},
		Spec: policyv1.PodDisruptionBudgetSpec{MinAvailable: &one,
			Selector: &metav1.LabelSelector{MatchLabels: managerLabels(h.name())}},
	}, metav1.CreateOptions{})
	return cluster.Unless(err, apierrors.IsAlreadyExists)
}

// keeps explains why a cordoned node may not be drained yet; empty if it may
// (instance_manager_controller.go, canDeleteInstanceManagerPDB).
func (s *state) keeps(h *host) string {
	for _, v := range s.volumes {
		if v.Status.CurrentNodeID == h.name() {
			return fmt.Sprintf("volume %s is attached", v.Name)
		}
	}
	if s.policy == alwaysDrains {
		return ""
	}
	for _, r := range s.replicas {
		isStopped := r.Spec.DesireState == "stopped" && r.Status.CurrentState == "stopped"
		isUnused := r.Spec.HealthyAt == "" && r.Spec.FailedAt == ""
		switch {
		case r.Spec.NodeID != h.name():
		case s.policy == movesAll:
			return fmt.Sprintf("replica %s is there", r.Name)
		case s.policy == ignoresStopped && isStopped, isUnused:
		case !s.safe(r):
			return fmt.Sprintf("replica %s has no pdb on another node", r.Name)
		}
	}
	return ""
}

// safe reports whether another node protects an intact replica of the same volume.
func (s *state) safe(r *replica) bool {
	for _, other := range s.of(r.Spec.VolumeName) {
		h := s.host(other.Spec.NodeID)
		protects := h.runs() && !h.cordoned() && h.budget != nil
		if other.Spec.NodeID != r.Spec.NodeID && other.intact() && protects {
			return true
		}
	}
	return false
}

func (r *replica) intact() bool { return r.Spec.HealthyAt != "" && r.Spec.FailedAt == "" }
