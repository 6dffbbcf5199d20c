package ccm_test

import (
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	api "github.com/hetznercloud/hcloud-go/v2/hcloud"
	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	emulator "github.com/ephemeral-castle/castle/internal/emulator/hcloud"
	"github.com/ephemeral-castle/castle/lab/internal/operators/clustertest"
	"github.com/ephemeral-castle/castle/lab/internal/operators/hcloud/ccm"
)

const token = "writes"

// project is a project with a network and the server green-worker-01, and a cluster with its node.
type project struct {
	*testing.T
	k      *clustertest.Stage
	s      *emulator.Server
	api    *api.Client
	m      *ccm.Manager
	server *api.Server
}

// in makes a project. Its controller has more variables in its environment.
func in(t *testing.T, more ...corev1.EnvVar) project {
	t.Helper()
	s := emulator.New(emulator.Config{Token: token})
	t.Cleanup(s.Close)
	s.AddImage(schema.Image{Description: "Talos", Architecture: "x86"})
	front := httptest.NewServer(s)
	t.Cleanup(front.Close)
	p := project{T: t, s: s, api: api.NewClient(api.WithEndpoint(front.URL+"/v1"), api.WithToken(token))}

	subnet := api.NetworkSubnet{Type: api.NetworkSubnetTypeCloud, NetworkZone: api.NetworkZoneEUCentral,
		IPRange: cidr(t, "10.10.1.0/24")}
	n, _, err := p.api.Network.Create(t.Context(), api.NetworkCreateOpts{Name: "green",
		IPRange: cidr(t, "10.10.0.0/16"), Subnets: []api.NetworkSubnet{subnet}})
	p.must(err)
	p.server = p.makes("green-worker-01", n)

	secret := func(name string) corev1.EnvVar {
		return corev1.EnvVar{Name: "HCLOUD_" + strings.ToUpper(name), ValueFrom: &corev1.EnvVarSource{
			SecretKeyRef: &corev1.SecretKeySelector{Key: name,
				LocalObjectReference: corev1.LocalObjectReference{Name: "hcloud"}}}}
	}
	env := append([]corev1.EnvVar{secret("token"), secret("network"),
		{Name: "HCLOUD_ENDPOINT", Value: front.URL + "/v1"}}, more...)
	d := clustertest.Deployment("kube-system", "hcloud-cloud-controller-manager")
	d.Spec.Template.Spec.Containers = []corev1.Container{{Env: env}}
	worker := node("green-worker-01", p.server.PrivateNet[0].IP.String())
	p.k = clustertest.New(nil, 0, d, worker, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "hcloud"},
		Data:       map[string][]byte{"token": []byte(token), "network": []byte("green")}})
	p.m = ccm.New(p.k.World, http.DefaultClient)
	return p
}

func (p project) must(err error) {
	p.Helper()
	if err != nil {
		p.Fatal(err)
	}
}

func cidr(t *testing.T, text string) *net.IPNet {
	t.Helper()
	_, network, err := net.ParseCIDR(text)
	if err != nil {
		t.Fatal(err)
	}
	return network
}

// makes creates a server, in a network.
func (p project) makes(name string, n *api.Network) *api.Server {
	p.Helper()
	images, err := p.api.Image.All(p.Context())
	p.must(err)
	made, _, err := p.api.Server.Create(p.Context(), api.ServerCreateOpts{Name: name, Image: images[0],
		ServerType: &api.ServerType{Name: "cx33"}, Location: &api.Location{Name: "nbg1"},
		Networks: []*api.Network{n}})
	p.must(err)
	p.must(p.api.Action.WaitFor(p.Context(), append(made.NextActions, made.Action)...))
	s, _, err := p.api.Server.GetByID(p.Context(), made.Server.ID)
	p.must(err)
	return s
}

// node is one whose kubelet waits for the controller.
func node(name, address string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: "n"},
		Spec: corev1.NodeSpec{Taints: []corev1.Taint{{Key: ccm.Uninitialized, Value: "true",
			Effect: corev1.TaintEffectNoSchedule}}},
		Status: corev1.NodeStatus{
			Addresses:  []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: address}},
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}},
	}
}

func (p project) node() *corev1.Node {
	p.Helper()
	n, err := p.k.World.Typed.CoreV1().Nodes().Get(p.Context(), "green-worker-01", metav1.GetOptions{})
	p.must(err)
	return n
}

// reports writes the condition Ready of the node.
func (p project) reports(ready corev1.ConditionStatus) {
	p.Helper()
	n := p.node()
	n.Status.Conditions[0].Status = ready
	_, err := p.k.World.Typed.CoreV1().Nodes().UpdateStatus(p.Context(), n, metav1.UpdateOptions{})
	p.must(err)
}

// exposes creates a Service of type LoadBalancer.
func (p project) exposes(annotations map[string]string) *corev1.Service {
	p.Helper()
	s, err := p.k.World.Typed.CoreV1().Services("web").Create(p.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "traefik", Annotations: annotations,
			UID: "0f4f1b1e-58a2-4a0c-a6c5-0123456789ab"},
		Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer,
			Ports: []corev1.ServicePort{{Port: 443, NodePort: 30443, Protocol: corev1.ProtocolTCP}}},
	}, metav1.CreateOptions{})
	p.must(err)
	return s
}

func (p project) service() *corev1.Service {
	p.Helper()
	s, err := p.k.World.Typed.CoreV1().Services("web").Get(p.Context(), "traefik", metav1.GetOptions{})
	p.must(err)
	return s
}

func (p project) looks() {
	p.Helper()
	p.k.Look(p.T, p.m)
}

func TestTheControllerInitializesANode(t *testing.T) {
	p := in(t)
	p.looks()
	n := p.node()
	if len(n.Spec.Taints) != 0 || n.Spec.ProviderID != "hcloud://"+strconv.FormatInt(p.server.ID, 10) {
		t.Errorf("taints %v, provider id %q", n.Spec.Taints, n.Spec.ProviderID)
	}
	if n.Labels["topology.kubernetes.io/region"] != "nbg1" ||
		n.Labels["topology.kubernetes.io/zone"] != "nbg1-dc3" ||
		n.Labels["node.kubernetes.io/instance-type"] != "cx33" {
		t.Errorf("labels %v", n.Labels)
	}
	want := []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: p.server.PrivateNet[0].IP.String()},
		{Type: corev1.NodeHostName, Address: "green-worker-01"},
		{Type: corev1.NodeExternalIP, Address: p.server.PublicNet.IPv4.IP.String()}}
	if !slices.Equal(n.Status.Addresses, want) {
		t.Errorf("addresses %v, want %v", n.Status.Addresses, want)
	}
}

func TestANodeWithAnotherAddressStaysTainted(t *testing.T) {
	p := in(t)
	n := p.node()
	n.Status.Addresses[0].Address = "192.168.1.5"
	_, err := p.k.World.Typed.CoreV1().Nodes().UpdateStatus(t.Context(), n, metav1.UpdateOptions{})
	p.must(err)
	if err := p.m.Look(t.Context()); err == nil || !strings.Contains(err.Error(), "provided node ip") {
		t.Errorf("error %v", err)
	}
	if n := p.node(); len(n.Spec.Taints) != 1 || n.Spec.ProviderID != "" {
		t.Errorf("taints %v, provider id %q", n.Spec.Taints, n.Spec.ProviderID)
	}
}

func TestANodeFollowsTheLifeOfItsServer(t *testing.T) {
	p := in(t)
	p.looks()
	p.s.PowerOff(p.server.ID)
	p.reports(corev1.ConditionUnknown)
	again := ccm.New(p.k.World, http.DefaultClient) // without a list of servers
	p.k.Look(t, again)
	off := "node.cloudprovider.kubernetes.io/shutdown"
	if n := p.node(); len(n.Spec.Taints) != 1 || n.Spec.Taints[0].Key != off {
		t.Errorf("taints of a node whose server is off: %v", n.Spec.Taints)
	}
	p.reports(corev1.ConditionTrue)
	p.k.Look(t, again)
	if n := p.node(); len(n.Spec.Taints) != 0 {
		t.Errorf("taints of a node that is back: %v", n.Spec.Taints)
	}
	result, _, err := p.api.Server.DeleteWithResult(t.Context(), p.server)
	p.must(err)
	p.must(p.api.Action.WaitFor(t.Context(), result.Action))
	p.reports(corev1.ConditionUnknown)
	p.k.Look(t, ccm.New(p.k.World, http.DefaultClient))
	_, err = p.k.World.Typed.CoreV1().Nodes().Get(t.Context(), "green-worker-01", metav1.GetOptions{})
	if !apierrors.IsNotFound(err) {
		t.Errorf("the node of a server that is gone: %v", err)
	}
}

func TestAServiceGetsALoadBalancerAndLosesIt(t *testing.T) {
	p := in(t, corev1.EnvVar{Name: "HCLOUD_LOAD_BALANCERS_LOCATION", Value: "fsn1"},
		corev1.EnvVar{Name: "HCLOUD_LOAD_BALANCERS_USE_PRIVATE_IP", Value: "true"})
	p.looks()
	s := p.exposes(map[string]string{"load-balancer.hetzner.cloud/private-ipv4": "10.10.1.200"})
	p.looks()
	all := p.s.LoadBalancers()
	if len(all) != 1 || all[0].Name != "a0f4f1b1e58a24a0ca6c50123456789a" ||
		all[0].Labels["hcloud-ccm/service-uid"] != string(s.UID) {
		t.Fatalf("load balancers %+v", all)
	}
	b := all[0]
	if len(b.Services) != 1 || b.Services[0].ListenPort != 443 || b.Services[0].DestinationPort != 30443 {
		t.Errorf("services %+v", b.Services)
	}
	if len(b.Targets) != 1 || b.Targets[0].Server.ID != p.server.ID || !b.Targets[0].UsePrivateIP {
		t.Errorf("targets %+v", b.Targets)
	}
	var addresses []string
	for _, i := range p.service().Status.LoadBalancer.Ingress {
		addresses = append(addresses, i.IP)
	}
	if len(addresses) != 3 || addresses[0] != b.PublicNet.IPv4.IP || addresses[2] != "10.10.1.200" {
		t.Errorf("addresses %v", addresses)
	}
	requests := len(p.s.Requests())
	p.looks()
	if more := len(p.s.Requests()) - requests; more != 0 {
		t.Errorf("%d requests although nothing has changed", more)
	}
	changed := p.service()
	changed.Spec.Ports[0].Port = 8443
	_, err := p.k.World.Typed.CoreV1().Services("web").Update(t.Context(), changed, metav1.UpdateOptions{})
	p.must(err)
	p.looks()
	if b = p.s.LoadBalancers()[0]; len(b.Services) != 1 || b.Services[0].ListenPort != 8443 {
		t.Errorf("services %+v", b.Services)
	}
	changed = p.service()
	if !slices.Contains(changed.Finalizers, "service.kubernetes.io/load-balancer-cleanup") {
		t.Errorf("finalizers %v", changed.Finalizers)
	}
	changed.Spec.Type = corev1.ServiceTypeClusterIP
	_, err = p.k.World.Typed.CoreV1().Services("web").Update(t.Context(), changed, metav1.UpdateOptions{})
	p.must(err)
	p.looks()
	if s := p.service(); len(p.s.LoadBalancers()) != 0 || len(s.Finalizers) != 0 ||
		len(s.Status.LoadBalancer.Ingress) != 0 {
		t.Errorf("load balancers %v, finalizers %v", p.s.LoadBalancers(), s.Finalizers)
	}
}

func TestAServiceWithoutALocationGetsNone(t *testing.T) {
	p := in(t)
	p.exposes(nil)
	err := p.m.Look(t.Context())
	if err == nil || !strings.Contains(err.Error(), "neither load-balancer.hetzner.cloud/location nor") {
		t.Errorf("error %v", err)
	}
	events, err := p.k.World.Typed.CoreV1().Events("web").List(t.Context(), metav1.ListOptions{})
	p.must(err)
	if len(events.Items) != 1 || events.Items[0].Reason != "SyncLoadBalancerFailed" {
		t.Errorf("events %+v", events.Items)
	}
}

// A load balancer that is protected is left behind without a word.
func TestAProtectedLoadBalancerStays(t *testing.T) {
	p := in(t, corev1.EnvVar{Name: "HCLOUD_LOAD_BALANCERS_LOCATION", Value: "fsn1"})
	p.exposes(nil)
	p.looks()
	all, err := p.api.LoadBalancer.All(t.Context())
	p.must(err)
	protected := true
	a, _, err := p.api.LoadBalancer.ChangeProtection(t.Context(), all[0],
		api.LoadBalancerChangeProtectionOpts{Delete: &protected})
	p.must(err)
	p.must(p.api.Action.WaitFor(t.Context(), a))
	s := p.service()
	s.DeletionTimestamp = &metav1.Time{Time: time.Now()}
	_, err = p.k.World.Typed.CoreV1().Services("web").Update(t.Context(), s, metav1.UpdateOptions{})
	p.must(err)
	p.looks()
	if len(p.s.LoadBalancers()) != 1 {
		t.Error("it is gone")
	}
}
