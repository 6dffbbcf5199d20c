package kubernetes

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	client "k8s.io/client-go/kubernetes"
)

// networkLabel marks the nodes whose network is ready: only then is a kubelet ready.
const networkLabel = "lab.castle/network"

// notNetworked is the condition of a node without a CNI, in the words of a kubelet.
func notNetworked() corev1.NodeCondition {
	now := metav1.Now()
	return corev1.NodeCondition{
		Type: corev1.NodeReady, Status: corev1.ConditionFalse, Reason: "KubeletNotReady",
		Message: "container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady " +
			"message:Network plugin returns error: cni plugin not initialized",
		LastHeartbeatTime: now, LastTransitionTime: now,
	}
}

// runNetworks marks the nodes whose network gets ready, as a CNI would.
func runNetworks(ctx context.Context, c Config, api client.Interface) error {
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		// The API may be busy; the next round asks again.
		if nodes, err := api.CoreV1().Nodes().List(ctx, metav1.ListOptions{
			LabelSelector: runningLabel + "=true,!" + networkLabel, ResourceVersion: "0"}); err == nil {
			for _, n := range nodes.Items {
				if !networked(ctx, c, api, n) {
					continue
				}
				patch := fmt.Appendf(nil, `{"metadata":{"labels":{%q:"ready"}}}`, networkLabel)
				_, err := api.CoreV1().Nodes().Patch(ctx, n.Name, types.StrategicMergePatchType, patch,
					metav1.PatchOptions{})
				if err != nil && !apierrors.IsNotFound(err) && ctx.Err() == nil {
					return err
				}
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// networked reports whether a CNI can set up the network of a node.
func networked(ctx context.Context, c Config, api client.Interface, n corev1.Node) bool {
	switch c.Network {
	case "":
		return n.Spec.PodCIDR != ""
	case "unseen":
		return true
	}
	sets, err := api.AppsV1().DaemonSets("").List(ctx, metav1.ListOptions{ResourceVersion: "0"})
	if err != nil {
		return false
	}
	for _, set := range sets.Items { // each CNI is one of the host's network
		if set.Spec.Template.Spec.HostNetwork && set.Name != "kube-proxy" {
			return true
		}
	}
	return false
}
