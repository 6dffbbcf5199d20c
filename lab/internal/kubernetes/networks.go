package kubernetes

import (
	"context"
	"fmt"
	"slices"
	"strings"
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
			LabelSelector: runningLabel + "=true,!" + networkLabel}); err == nil {
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
	pods, err := api.CoreV1().Pods("").List(ctx, metav1.ListOptions{
		FieldSelector: "spec.nodeName=" + n.Name + ",status.phase=Running"})
	return err == nil && slices.ContainsFunc(pods.Items, bringsNetwork)
}

// bringsNetwork reports whether a Pod is that of a CNI that runs: it is ready, and writes to the folder from
// which the container runtime reads its networks.
func bringsNetwork(p corev1.Pod) bool {
	ready := func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	}
	writes := func(v corev1.Volume) bool {
		return v.HostPath != nil && strings.TrimRight(v.HostPath.Path, "/") == "/etc/cni/net.d"
	}
	return slices.ContainsFunc(p.Status.Conditions, ready) && slices.ContainsFunc(p.Spec.Volumes, writes)
}
