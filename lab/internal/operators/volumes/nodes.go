package volumes

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/ephemeral-castle/castle/lab/internal/operators/cluster"
)

// The values of the setting node-drain-policy.
const (
	drainPolicy     = "node-drain-policy"
	keepsLast       = "block-if-contains-last-replica" // the default
	movesLast       = "block-for-eviction-if-contains-last-replica"
	movesAll        = "block-for-eviction"
	ignoresStopped  = "allow-if-replica-is-stopped"
	alwaysDrains    = "always-allow"
	defaultSettings = "longhorn-default-setting"
)

// settings reads the setting node-drain-policy, which it makes of the chart's values.
func (v *Volumes) settings(ctx context.Context, namespace string) error {
	api := v.w.Untyped.Resource(Resource("settings")).Namespace(namespace)
	have, err := api.Get(ctx, drainPolicy, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		text, _, err := v.w.Offered(ctx, "ConfigMap", namespace, defaultSettings)
		if err != nil {
			return err
		}
		values := map[string]any{}
		if err := yaml.Unmarshal([]byte(text["default-setting.yaml"]), &values); err != nil {
			return cluster.About(defaultSettings, err)
		}
		value, given := values[drainPolicy]
		if !given {
			value = keepsLast
		}
		have, err = api.Create(ctx, &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": apiVersion, "kind": "Setting", "value": fmt.Sprint(value),
			"metadata": map[string]any{"name": drainPolicy, "namespace": namespace},
		}}, metav1.CreateOptions{})
		if err != nil {
			return err
		}
	} else if err != nil {
		return err
	}
	v.policy = cluster.Text(have.Object, "value")
	return nil
}

// join makes the nodes of managers that Longhorn does not know yet, first without their disks.
func (s *state) join(ctx context.Context, managers []corev1.Pod) error {
	var errs []error
	for _, manager := range managers {
		name := manager.Spec.NodeName
		if s.host(name) != nil || s.kube[name] == nil {
			continue
		}
		have, err := s.w.Untyped.Resource(Resource("nodes")).Namespace(s.namespace).Create(ctx,
			&unstructured.Unstructured{Object: map[string]any{
				"apiVersion": apiVersion, "kind": "Node",
				"metadata": map[string]any{"name": name, "namespace": s.namespace},
				"spec": map[string]any{"name": name, "allowScheduling": true, "evictionRequested": false,
					"disks": map[string]any{
						"default-disk": map[string]any{"diskType": "filesystem", "path": "/var/lib/longhorn/",
							"allowScheduling": true, "evictionRequested": false},
					}},
			}}, metav1.CreateOptions{})
		if err != nil {
			errs = append(errs, cluster.Unless(err, apierrors.IsAlreadyExists))
			continue
		}
		s.hosts = append(s.hosts, &host{node: have, kube: s.kube[name]})
	}
	return errors.Join(errs...)
}

// report writes the status of a node, and removes one whose machine has left.
func (s *state) report(ctx context.Context, h *host) error {
	var replicas []*replica
	for _, r := range s.replicas {
		if r.Spec.NodeID == h.name() {
			replicas = append(replicas, r)
		}
	}
	isGone := cluster.OfCondition(h.node.Object, "Ready", "reason") == "KubernetesNodeGone"
	if h.kube == nil && isGone && len(replicas) == 0 && !h.allows() {
		return errors.Join(remove(ctx, s.w, "instancemanagers", s.namespace, managerOf(h.name())),
			cluster.Unless(s.w.Typed.PolicyV1().PodDisruptionBudgets(s.namespace).Delete(ctx,
				managerOf(h.name()), metav1.DeleteOptions{}), apierrors.IsNotFound),
			remove(ctx, s.w, "nodes", s.namespace, h.name()))
	}
	disks := s.w.Passed("longhorn disks", disksAfter)
	return s.w.SetStatus(ctx, Resource("nodes"), h.node, func(status map[string]any) {
		set := func(condition, value, reason, message string) {
			s.w.SetCondition(status, condition, value, reason, message, 0)
		}
		switch {
		case h.kube == nil:
			set("Ready", "False", "KubernetesNodeGone", fmt.Sprintf("Kubernetes node missing: node %v has "+
				"been removed from the cluster and there is no manager pod running on it", h.name()))
		case !h.up():
			set("Ready", "False", "KubernetesNodeNotReady", fmt.Sprintf("Kubernetes node %v not ready: "+
				"NodeStatusUnknown", h.name()))
		default:
			set("Ready", "True", "", "")
		}
		if h.cordoned() {
			set("Schedulable", "False", "KubernetesNodeCordoned",
				fmt.Sprintf("Node %v is cordoned", h.name()))
		} else {
			set("Schedulable", "True", "", "")
		}
		for _, condition := range []string{"MountPropagation", "RequiredPackages", "KernelModulesLoaded",
			"NFSClientInstalled", "Multipathd"} {
			set(condition, "True", "", "")
		}
		status["autoEvicting"] = s.evictsSome(h, replicas)
		if !disks {
			return
		}
		scheduled := map[string]any{}
		for _, r := range replicas {
			scheduled[r.Name] = int64(1 << 30)
		}
		disk := map[string]any{
			"diskName": "default-disk", "diskPath": "/var/lib/longhorn/", "diskType": "filesystem",
			"storageMaximum": int64(40 << 30), "storageAvailable": int64(39 << 30),
			"storageScheduled": int64(len(replicas)) << 30, "scheduledReplica": scheduled,
		}
		disk["conditions"] = cluster.Nested(status, "diskStatus", "default-disk")["conditions"]
		for _, condition := range []string{"Ready", "Schedulable"} {
			s.w.SetCondition(disk, condition, "True", "", "", 0)
		}
		status["diskStatus"] = map[string]any{"default-disk": disk}
	})
}

// evictsSome reports whether the drain policy moves replicas off a node.
func (s *state) evictsSome(h *host, replicas []*replica) bool {
	for _, r := range replicas {
		if s.moves(h, r) && !h.evicts() {
			return true
		}
	}
	return false
}
