package cilium_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/ephemeral-castle/castle/lab/internal/operators/cilium"
	"github.com/ephemeral-castle/castle/lab/internal/operators/cluster"
	"github.com/ephemeral-castle/castle/lab/internal/operators/clustertest"
)

const prism = 7445

func definitions() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1",
		Resource: "customresourcedefinitions"}
}

func policies() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "cilium.io", Version: "v2alpha1",
		Resource: "ciliuml2announcementpolicies"}
}

func bgp(plural string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "cilium.io", Version: "v2", Resource: plural}
}

// stage is a cluster of one node with an agent and an operator, which reach the API at a port of the node.
func stage(t *testing.T, port string, more ...runtime.Object) *clustertest.Stage {
	t.Helper()
	pod := func(name string, labels map[string]string) *corev1.Pod {
		labels["app.kubernetes.io/part-of"] = "cilium"
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: name, Labels: labels,
				Annotations: map[string]string{cilium.Waits: "yes"}},
			Spec: corev1.PodSpec{NodeName: "green-cp-01", Containers: []corev1.Container{{
				Env: []corev1.EnvVar{{Name: "KUBERNETES_SERVICE_HOST", Value: "localhost"},
					{Name: "KUBERNETES_SERVICE_PORT", Value: port}}}}},
		}
	}
	objects := append([]runtime.Object{
		pod("agent", map[string]string{"k8s-app": "cilium"}),
		pod("operator", map[string]string{"io.cilium/app": "operator"}),
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "green-cp-01"},
			Spec: corev1.NodeSpec{PodCIDR: "10.244.0.0/24"}},
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "cilium-config"},
			Data: map[string]string{"ipam": "kubernetes", "enable-lb-ipam": "true",
				"enable-l2-announcements": "true", "enable-bgp-control-plane": "true"}},
	}, more...)
	return clustertest.New(map[schema.GroupVersionResource]string{
		definitions():                  "CustomResourceDefinitionList",
		cilium.Pools():                 "CiliumLoadBalancerIPPoolList",
		policies():                     "CiliumL2AnnouncementPolicyList",
		bgp("ciliumbgpclusterconfigs"): "CiliumBGPClusterConfigList",
		bgp("ciliumbgpnodeconfigs"):    "CiliumBGPNodeConfigList",
		bgp("ciliumbgppeerconfigs"):    "CiliumBGPPeerConfigList",
	}, 1, objects...)
}

func waits(t *testing.T, s *clustertest.Stage, pod string) bool {
	t.Helper()
	p, err := s.World.Typed.CoreV1().Pods("kube-system").Get(t.Context(), pod, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return p.Annotations[cilium.Waits] != ""
}

// starts is the kubelet's report that a Pod is ready.
func starts(t *testing.T, s *clustertest.Stage, pod string) {
	t.Helper()
	pods := s.World.Typed.CoreV1().Pods("kube-system")
	p, err := pods.Get(t.Context(), pod, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	if _, err := pods.UpdateStatus(t.Context(), p, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// establishes is the API server's report that it serves all kinds.
func establishes(t *testing.T, s *clustertest.Stage) int {
	t.Helper()
	all, err := s.World.List(t.Context(), definitions(), "")
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range all {
		if err := s.World.SetStatus(t.Context(), definitions(), &d, func(status map[string]any) {
			s.World.SetCondition(status, "Established", "True", "InitialNamesAccepted", "", 0)
		}); err != nil {
			t.Fatal(err)
		}
	}
	return len(all)
}

// run brings operator and agent up.
func run(t *testing.T, s *clustertest.Stage) *cilium.Cilium {
	t.Helper()
	c := cilium.New(s.World, cilium.Machines{KubePrism: prism})
	s.Look(t, c)
	starts(t, s, "operator")
	s.Look(t, c)
	s.Later(t, 3*time.Second, c)
	establishes(t, s)
	s.Look(t, c)
	starts(t, s, "agent")
	s.Look(t, c)
	s.Look(t, c)
	return c
}

func node(t *testing.T, s *clustertest.Stage) *corev1.Node {
	t.Helper()
	n, err := s.World.Typed.CoreV1().Nodes().Get(t.Context(), "green-cp-01", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestAgentsWaitForTheKindsThatTheOperatorCreates(t *testing.T) {
	s := stage(t, "7445")
	c := cilium.New(s.World, cilium.Machines{KubePrism: prism})
	s.Look(t, c)
	if waits(t, s, "operator") || !waits(t, s, "agent") {
		t.Fatal("the operator starts first, and the agent waits for it")
	}
	starts(t, s, "operator")
	s.Look(t, c)
	if taints := node(t, s).Spec.Taints; len(taints) != 1 ||
		taints[0].Key != "node.cilium.io/agent-not-ready" || taints[0].Effect != "NoSchedule" {
		t.Errorf("the node of an agent that is not ready has the taints %v", taints)
	}
	s.Later(t, 3*time.Second, c)
	if n := establishes(t, s); n != 22 || !waits(t, s, "agent") {
		t.Fatalf("%d kinds; the agent has to wait until they are established", n)
	}
	s.Look(t, c)
	if waits(t, s, "agent") {
		t.Fatal("the kinds are established, and the agent waits")
	}
	starts(t, s, "agent")
	s.Look(t, c)
	s.Look(t, c)
	n := node(t, s)
	if len(n.Spec.Taints) != 0 || len(n.Status.Conditions) != 1 ||
		n.Status.Conditions[0].Reason != "CiliumIsUp" {
		t.Errorf("taints %v, conditions %v", n.Spec.Taints, n.Status.Conditions)
	}
}

func TestNothingStartsWithoutAWayToTheAPI(t *testing.T) {
	for name, m := range map[string]cilium.Machines{
		"KubePrism is off": {}, "KubePrism has another port": {KubePrism: 7446},
		"kube-proxy alone": {KubeProxy: true},
	} {
		s := stage(t, "7445")
		s.Look(t, cilium.New(s.World, m))
		if !waits(t, s, "operator") {
			t.Errorf("%s: the operator reaches the API", name)
		}
	}
}

func service(name string, change func(*corev1.Service)) *corev1.Service {
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: name},
		Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer}}
	if change != nil {
		change(s)
	}
	return s
}

func TestServicesGetAddressesAndLeases(t *testing.T) {
	class := "example.org/other"
	s := stage(t, "7445",
		service("first", nil),
		service("foreign", func(s *corev1.Service) { s.Spec.LoadBalancerClass = &class }),
		service("taken", func(s *corev1.Service) {
			s.Annotations = map[string]string{"lbipam.cilium.io/ips": "192.168.1.232"}
		}),
		service("wanted", func(s *corev1.Service) {
			s.Annotations = map[string]string{"lbipam.cilium.io/ips": "192.168.1.233"}
		}))
	s.Create(t, cilium.Pools(), `{"apiVersion":"cilium.io/v2","kind":"CiliumLoadBalancerIPPool",
		"metadata":{"name":"main"},"spec":{"blocks":[{"start":"192.168.1.232","stop":"192.168.1.233"}]}}`)
	s.Create(t, policies(), `{"apiVersion":"cilium.io/v2alpha1","kind":"CiliumL2AnnouncementPolicy",
		"metadata":{"name":"main"},"spec":{"loadBalancerIPs":true}}`)
	c := run(t, s)
	for name, want := range map[string]struct{ address, reason string }{
		"first": {"192.168.1.232", "satisfied"}, "wanted": {"192.168.1.233", "satisfied"},
		"taken": {"", "already_allocated"}, "foreign": {"", ""},
	} {
		found, err := s.World.Typed.CoreV1().Services("web").Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		address, reason := "", ""
		for _, i := range found.Status.LoadBalancer.Ingress {
			address = i.IP
		}
		for _, c := range found.Status.Conditions {
			reason = c.Reason
		}
		if address != want.address || reason != want.reason {
			t.Errorf("%s has %q (%s), want %q (%s)", name, address, reason, want.address, want.reason)
		}
	}
	pool := s.Get(t, cilium.Pools(), "", "main")
	if got := cluster.MessageOf(pool.Object, "cilium.io/IPsAvailable"); got != "0" {
		t.Errorf("%s addresses are free", got)
	}
	leases := s.World.Typed.CoordinationV1().Leases("kube-system")
	lease, err := leases.Get(t.Context(), "cilium-l2announce-web-first", metav1.GetOptions{})
	if err != nil || *lease.Spec.HolderIdentity != "green-cp-01" {
		t.Fatalf("lease: %v %v", lease, err)
	}
	s.Later(t, 10*time.Second, c)
	later, err := leases.Get(t.Context(), lease.Name, metav1.GetOptions{})
	if err != nil || !later.Spec.RenewTime.After(lease.Spec.RenewTime.Time) {
		t.Errorf("the lease is not renewed: %v %v", later, err)
	}
}

func TestPoolsThatOverlapConflict(t *testing.T) {
	s := stage(t, "7445", service("first", nil))
	for name, block := range map[string]string{"a": `{"cidr":"192.168.1.232/30"}`,
		"b": `{"start":"192.168.1.235","stop":"192.168.1.240"}`} {
		s.Create(t, cilium.Pools(), `{"apiVersion":"cilium.io/v2","kind":"CiliumLoadBalancerIPPool",
			"metadata":{"name":"`+name+`"},"spec":{"blocks":[`+block+`]}}`)
	}
	run(t, s)
	for name, want := range map[string]string{"a": "", "b": "True"} {
		found := s.Get(t, cilium.Pools(), "", name)
		if got := cluster.ConditionOf(found.Object, "cilium.io/PoolConflict"); got != want {
			t.Errorf("pool %s: PoolConflict is %q, want %q", name, got, want)
		}
	}
}

// The operator makes the object of a node, and its agent opens the sessions in it, for which it needs the
// CiliumBGPPeerConfig that they name.
func TestNodesPeerWithRouters(t *testing.T) {
	s := stage(t, "7445")
	s.Create(t, bgp("ciliumbgpclusterconfigs"), `{"apiVersion":"cilium.io/v2",
		"kind":"CiliumBGPClusterConfig","metadata":{"name":"main","generation":1},"spec":{"bgpInstances":[
		{"name":"castle","localASN":64512,"peers":[{"name":"router","peerAddress":"192.168.1.1",
		"peerASN":64513,"peerConfigRef":{"name":"main"}}]}]}}`)
	c := run(t, s)
	state := func() string {
		t.Helper()
		all, _, err := unstructured.NestedSlice(s.Get(t, bgp("ciliumbgpnodeconfigs"), "",
			"green-cp-01").Object, "status", "bgpInstances")
		if err != nil || len(all) != 1 {
			t.Fatalf("instances: %v, %v", all, err)
		}
		peers, _, err := unstructured.NestedSlice(all[0].(map[string]any), "peers")
		if err != nil || len(peers) != 1 {
			t.Fatalf("peers: %v, %v", peers, err)
		}
		return cluster.Text(peers[0].(map[string]any), "peeringState")
	}
	s.Later(t, 10*time.Second, c)
	of := s.Get(t, bgp("ciliumbgpclusterconfigs"), "", "main")
	if state() != "active" || cluster.ConditionOf(of.Object, "cilium.io/MissingPeerConfigs") != "True" {
		t.Errorf("without its configuration, a session is %s: %v", state(), of.Object["status"])
	}
	s.Create(t, bgp("ciliumbgppeerconfigs"), `{"apiVersion":"cilium.io/v2","kind":"CiliumBGPPeerConfig",
		"metadata":{"name":"main"},"spec":{}}`)
	s.Look(t, c)
	if state() != "active" {
		t.Errorf("a session is %s at once", state())
	}
	s.Later(t, 6*time.Second, c)
	if state() != "established" {
		t.Errorf("a session is %s", state())
	}
	in := s.World.Untyped.Resource(bgp("ciliumbgppeerconfigs"))
	_, err := in.Patch(t.Context(), "main", types.MergePatchType,
		[]byte(`{"spec":{"authSecretRef":"main-bgp"}}`), metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	s.Later(t, 6*time.Second, c)
	if state() != "active" {
		t.Errorf("without its password, a session is %s", state())
	}
	if _, err := s.World.Typed.CoreV1().Secrets("kube-system").Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "main-bgp"}, Data: map[string][]byte{"password": []byte("s")}},
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	s.Look(t, c)
	s.Later(t, 6*time.Second, c)
	if state() != "established" {
		t.Errorf("with its password, a session is %s", state())
	}
	if err := s.World.Untyped.Resource(bgp("ciliumbgpclusterconfigs")).Delete(t.Context(), "main",
		metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	s.Look(t, c)
	if left, err := s.World.List(t.Context(), bgp("ciliumbgpnodeconfigs"), ""); err != nil || len(left) != 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}
