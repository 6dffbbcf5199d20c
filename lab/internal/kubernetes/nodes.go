package kubernetes

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	client "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/retry"
)

// runningLabel marks the nodes whose kubelet runs, for kwok to play it. stoppedAnnotation is the time when it
// last stopped, for those who did not look at that moment.
const (
	runningLabel      = "lab.castle/kubelet"
	stoppedAnnotation = "lab.castle/stopped"
)

// Node is a machine as its kubelet registers it.
type Node struct {
	Name      string
	Addresses []string // one for each IP family
	OS        string   // Talos (v1.13.0)
	Kubelet   string   // v1.36.0
	// StaticPods are the images of the static Pods that it runs in kube-system, by name.
	StaticPods  map[string]string
	CPUs        int64
	MemoryBytes int64
	// Taints are those that its kubelet registers with: key: "value:effect" or "effect".
	Taints map[string]string
	// Booted: the machine has booted since its node was last seen, so the containers of its Pods start anew.
	Booted bool
}

// Nodes registers and silences kubelets. It needs only the API, so it works
// from another process than the control plane's.
type Nodes struct{ Client client.Interface }

// Run registers the node, or wakes up the one of that name.
func (n Nodes) Run(ctx context.Context, node Node) error {
	want := node.object()
	nodes := n.Client.CoreV1().Nodes()
	have, err := nodes.Create(ctx, want, metav1.CreateOptions{})
	if err == nil {
		return n.mirror(ctx, node, have.UID)
	}
	if !apierrors.IsAlreadyExists(err) {
		return err
	}
	if node.Booted {
		if err := n.unready(ctx, node.Name); err != nil {
			return err
		}
	}
	// The node controller writes to a node at any time.
	err = retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		have, err = nodes.Get(ctx, want.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		return n.wake(ctx, have, want)
	})
	if err != nil {
		return err
	}
	return n.mirror(ctx, node, have.UID)
}

// mirror creates the Pods by which the API shows a node's static Pods. One whose image has changed is made
// anew.
func (n Nodes) mirror(ctx context.Context, node Node, uid types.UID) error {
	pods := n.Client.CoreV1().Pods(metav1.NamespaceSystem)
	for _, name := range slices.Sorted(maps.Keys(node.StaticPods)) {
		want := node.mirrorPod(name, uid)
		have, err := pods.Get(ctx, want.Name, metav1.GetOptions{})
		if err == nil && have.Spec.Containers[0].Image == want.Spec.Containers[0].Image &&
			have.OwnerReferences[0].UID == uid {
			continue
		}
		if err == nil {
			now := int64(0)
			err = pods.Delete(ctx, want.Name, metav1.DeleteOptions{GracePeriodSeconds: &now})
		}
		if err == nil || apierrors.IsNotFound(err) {
			_, err = pods.Create(ctx, want, metav1.CreateOptions{})
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// mirrorPod is as a kubelet makes it of what Talos renders.
func (n Node) mirrorPod(name string, node types.UID) *corev1.Pod {
	isController := true
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: name + "-" + n.Name, Namespace: metav1.NamespaceSystem,
			Labels: map[string]string{"k8s-app": name, "component": name, "tier": "control-plane"},
			Annotations: map[string]string{corev1.MirrorPodAnnotationKey: n.StaticPods[name],
				"kubernetes.io/config.source": "http"},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: n.Name, UID: node,
				Controller: &isController}},
		},
		Spec: corev1.PodSpec{
			NodeName: n.Name, HostNetwork: true, PriorityClassName: "system-cluster-critical",
			Containers: []corev1.Container{{Name: name, Image: n.StaticPods[name]}},
			Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists,
				Effect: corev1.TaintEffectNoExecute}},
		},
	}
}

func (n Nodes) wake(ctx context.Context, have, want *corev1.Node) error {
	nodes := n.Client.CoreV1().Nodes()
	have.Status.Addresses, have.Status.NodeInfo = want.Status.Addresses, want.Status.NodeInfo
	have.Status.Capacity, have.Status.Allocatable = want.Status.Capacity, want.Status.Allocatable
	have, err := nodes.UpdateStatus(ctx, have, metav1.UpdateOptions{})
	if err != nil {
		return err
	}
	if have.Labels == nil {
		have.Labels = map[string]string{}
	}
	maps.Copy(have.Labels, want.Labels)
	_, err = nodes.Update(ctx, have, metav1.UpdateOptions{})
	return err
}

// Running lists the nodes whose kubelet runs, or ran when the cluster was last up.
func (n Nodes) Running(ctx context.Context) (names []string, _ error) {
	nodes, err := n.Client.CoreV1().Nodes().List(ctx, metav1.ListOptions{LabelSelector: runningLabel})
	if err != nil {
		return nil, err
	}
	for _, node := range nodes.Items {
		names = append(names, node.Name)
	}
	return names, nil
}

// Stop treats the node of a machine that halted: the heartbeat stops,
// and after the grace period the node is unknown. The node itself stays, as
// nothing in a cluster without a cloud removes it.
func (n Nodes) Stop(ctx context.Context, name string) error {
	patch := fmt.Appendf(nil, `{"metadata":{"labels":{%q:null},"annotations":{%q:%q}}}`, runningLabel,
		stoppedAnnotation, time.Now().Format(time.RFC3339Nano))
	_, err := n.Client.CoreV1().Nodes().Patch(ctx, name, types.StrategicMergePatchType, patch,
		metav1.PatchOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// ShutDown treats the node of a machine that goes down in order: its kubelet ends its Pods, reports itself
// not ready, and stops its heartbeat.
func (n Nodes) ShutDown(ctx context.Context, name string) error {
	if err := n.Stop(ctx, name); err != nil {
		return err
	}
	if err := n.unready(ctx, name); err != nil {
		return err
	}
	patch := fmt.Appendf(nil, `{"status":{"conditions":[{"type":"Ready","status":"False",`+
		`"reason":"KubeletNotReady","message":"node is shutting down",`+
		`"lastHeartbeatTime":%[1]q,"lastTransitionTime":%[1]q}]}}`, timestamp())
	_, err := n.Client.CoreV1().Nodes().Patch(ctx, name, types.StrategicMergePatchType, patch,
		metav1.PatchOptions{}, "status")
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

func timestamp() string { return time.Now().UTC().Format(time.RFC3339) }

// unready makes the Pods of a node unready: their containers do not run.
func (n Nodes) unready(ctx context.Context, node string) error {
	pods, err := n.Client.CoreV1().Pods("").List(ctx, metav1.ListOptions{
		FieldSelector: "spec.nodeName=" + node + ",status.phase=Running"})
	if err != nil {
		return err
	}
	patch := fmt.Appendf(nil, `{"status":{"conditions":[`+
		`{"type":"Ready","status":"False","lastTransitionTime":%[1]q},`+
		`{"type":"ContainersReady","status":"False","lastTransitionTime":%[1]q}]}}`, timestamp())
	for _, p := range pods.Items {
		_, err := n.Client.CoreV1().Pods(p.Namespace).Patch(ctx, p.Name, types.StrategicMergePatchType, patch,
			metav1.PatchOptions{}, "status")
		if err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	return nil
}

func (n Node) object() *corev1.Node {
	labels := map[string]string{
		runningLabel:           "true",
		corev1.LabelHostname:   n.Name,
		corev1.LabelOSStable:   "linux",
		corev1.LabelArchStable: "amd64",
	}
	capacity := corev1.ResourceList{
		corev1.ResourceCPU:              *resource.NewQuantity(n.CPUs, resource.DecimalSI),
		corev1.ResourceMemory:           *resource.NewQuantity(n.MemoryBytes, resource.BinarySI),
		corev1.ResourcePods:             resource.MustParse("110"),
		corev1.ResourceEphemeralStorage: resource.MustParse("30Gi"),
	}
	addresses := []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: n.Name}}
	for _, address := range slices.Backward(n.Addresses) {
		internal := corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: address}
		addresses = append([]corev1.NodeAddress{internal}, addresses...)
	}
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: n.Name, Labels: labels},
		Spec:       corev1.NodeSpec{Taints: n.taints()},
		Status: corev1.NodeStatus{
			Capacity: capacity, Allocatable: capacity, Conditions: []corev1.NodeCondition{notNetworked()},
			Addresses: addresses,
			NodeInfo: corev1.NodeSystemInfo{
				Architecture: "amd64", OperatingSystem: "linux", OSImage: n.OS, KubeletVersion: n.Kubelet,
				KernelVersion: "emulated", ContainerRuntimeVersion: "emulated://0",
			},
		},
	}
}

func (n Node) taints() []corev1.Taint {
	var taints []corev1.Taint
	for _, key := range slices.Sorted(maps.Keys(n.Taints)) {
		value, effect, found := strings.Cut(n.Taints[key], ":")
		if !found {
			value, effect = "", value
		}
		taints = append(taints, corev1.Taint{Key: key, Value: value, Effect: corev1.TaintEffect(effect)})
	}
	return taints
}
