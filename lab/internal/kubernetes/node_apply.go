package kubernetes

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	client "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"
)

// Description is what a machine's configuration says about its node.
type Description struct {
	ControlPlane bool
	// A taint reads key: "value:effect" or "effect".
	Labels, Annotations, Taints map[string]string
}

// Describe brings a node to its description once, as Talos' NodeApplyController does
// (internal/app/machined/pkg/controllers/k8s/node_apply.go): all of it in one update, and only what the node
// lacks or Talos has set itself. A control plane has an administrator's rights. A worker has those of its
// kubelet, to which the API server refuses changed taints and most labels of kubernetes.io.
func Describe(ctx context.Context, config *rest.Config, name string, want Description) error {
	config = rest.CopyConfig(config)
	if !want.ControlPlane {
		config.Impersonate = rest.ImpersonationConfig{UserName: "system:node:" + name,
			Groups: []string{"system:nodes"}}
	}
	as, err := client.NewForConfig(config)
	if err != nil {
		return err
	}
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		node, err := as.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return fmt.Errorf("error getting node: %w", err)
		}
		if err := want.apply(node); err != nil {
			return err
		}
		_, err = as.CoreV1().Nodes().Update(ctx, node, metav1.UpdateOptions{})
		return err
	})
}

// The annotations in which Talos notes what it has set.
const (
	ownedLabels      = "talos.dev/owned-labels"
	ownedAnnotations = "talos.dev/owned-annotations"
	ownedTaints      = "talos.dev/owned-taints"
)

func (d Description) apply(node *corev1.Node) error {
	if node.Annotations == nil {
		node.Annotations = map[string]string{}
	}
	owned := map[string]map[string]bool{}
	for _, of := range []string{ownedLabels, ownedAnnotations, ownedTaints} {
		var keys []string
		if text := node.Annotations[of]; text != "" {
			if err := json.Unmarshal([]byte(text), &keys); err != nil {
				return fmt.Errorf("error unmarshaling %s: %w", of, err)
			}
		}
		owned[of] = map[string]bool{}
		for _, key := range keys {
			owned[of][key] = true
		}
	}
	applyKeys(node.Labels, owned[ownedLabels], d.Labels)
	applyKeys(node.Annotations, owned[ownedAnnotations], d.Annotations)
	applyTaints(node, owned[ownedTaints], d.Taints)
	for of, keys := range owned {
		if len(keys) == 0 {
			delete(node.Annotations, of)
			continue
		}
		text, err := json.Marshal(slices.Sorted(maps.Keys(keys)))
		if err != nil {
			return err
		}
		node.Annotations[of] = string(text)
	}
	return nil
}

// applyKeys sets what is absent, or owned and different, and removes what is owned and no longer wanted.
func applyKeys(has map[string]string, owned map[string]bool, want map[string]string) {
	for key, value := range want {
		now, exists := has[key]
		if !exists || now == value || owned[key] {
			has[key], owned[key] = value, true
		}
	}
	for key := range owned {
		if _, wanted := want[key]; !wanted {
			delete(has, key)
			delete(owned, key)
		}
	}
}

// applyTaints touches no taint of another key: Kubernetes itself gives a node two of one key.
func applyTaints(node *corev1.Node, owned map[string]bool, all map[string]string) {
	text := func(t corev1.Taint) string { return t.Value + ":" + string(t.Effect) }
	has, want := map[string]string{}, map[string]string{}
	for _, t := range (Node{Taints: all}).taints() {
		want[t.Key] = text(t)
	}
	for _, t := range node.Spec.Taints {
		if _, wanted := want[t.Key]; wanted || owned[t.Key] {
			has[t.Key] = text(t)
		}
	}
	before := maps.Clone(has)
	applyKeys(has, owned, want)
	node.Spec.Taints = slices.DeleteFunc(node.Spec.Taints, func(t corev1.Taint) bool {
		was, touched := before[t.Key]
		return touched && has[t.Key] != was
	})
	for _, t := range (Node{Taints: has}).taints() {
		if before[t.Key] != has[t.Key] {
			node.Spec.Taints = append(node.Spec.Taints, t)
		}
	}
}
