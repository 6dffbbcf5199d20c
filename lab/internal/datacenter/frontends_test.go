package datacenter

import (
	"errors"
	"io"
	"net"
	"net/http/httptest"
	"net/netip"
	"os"
	"strconv"
	"testing"
	"time"

	api "github.com/hetznercloud/hcloud-go/v2/hcloud"
	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/ephemeral-castle/castle/internal/emulator/hcloud"
	"github.com/ephemeral-castle/castle/lab/internal/controlplane"
	"github.com/ephemeral-castle/castle/lab/internal/operators/hcloud/ccm"
)

// seen is what a client sees of an address: refused, ended or kept.
func seen(t *testing.T, at string) string {
	t.Helper()
	c, err := net.Dial("tcp", at)
	if err != nil {
		return "refused"
	}
	defer c.Close()
	if err := c.SetReadDeadline(time.Now().Add(200 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Read(make([]byte, 1)); errors.Is(err, os.ErrDeadlineExceeded) {
		return "kept"
	} else if !errors.Is(err, io.EOF) {
		t.Errorf("%s: %v", at, err)
	}
	return "ended"
}

// The load balancer of a Service listens while it has the port, and keeps connections while an endpoint is
// ready and its server runs. It never leaves the loopback.
func TestTheLoadBalancerOfAServiceNeedsAReadyEndpoint(t *testing.T) {
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	meta := metav1.ObjectMeta{Namespace: "web", Name: "shop",
		Labels: map[string]string{discoveryv1.LabelServiceName: "shop"}}
	k := fake.NewClientset(&corev1.Service{ObjectMeta: meta,
		Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 443, NodePort: 30443}}}})
	log := &lines{news: make(chan struct{}, 1)}
	x := &cloud{d: &Datacenter{log: newLogger(Config{Log: log}),
		clouds: &kube{cluster: &cluster{process: &controlplane.Process{Client: k}}}}}
	x.server = hcloud.New(hcloud.Config{Token: "token", Addresses: netip.MustParsePrefix("127.0.8.0/24"),
		Listens: x.listens})
	defer x.server.Close()
	endpoint := httptest.NewServer(x.server)
	defer endpoint.Close()
	c := api.NewClient(api.WithEndpoint(endpoint.URL+"/v1"), api.WithToken("token"))
	image := x.server.AddImage(schema.Image{})
	node, _, err := c.Server.Create(t.Context(), api.ServerCreateOpts{Name: "worker-1",
		ServerType: &api.ServerType{Name: "cx23"}, Image: &api.Image{ID: image},
		Location: &api.Location{Name: "fsn1"}})
	must(err)
	port, err := strconv.Atoi(freePort(t))
	must(err)
	to := 30443
	b, _, err := c.LoadBalancer.Create(t.Context(), api.LoadBalancerCreateOpts{Name: "shop",
		LoadBalancerType: &api.LoadBalancerType{Name: "lb11"}, Location: &api.Location{Name: "fsn1"},
		Labels: map[string]string{ccm.ServiceUID: "1"}})
	must(err)
	_, _, err = c.LoadBalancer.AddServerTarget(t.Context(), b.LoadBalancer,
		api.LoadBalancerAddServerTargetOpts{Server: node.Server})
	must(err)
	at := net.JoinHostPort(x.server.LoadBalancers()[0].PublicNet.IPv4.IP, strconv.Itoa(port))
	go x.balance(t.Context())
	await := func(want string) {
		t.Helper()
		for late, again := time.After(patience), time.Tick(50*time.Millisecond); seen(t, at) != want; {
			select {
			case <-late:
				t.Fatalf("%s is not %s", at, want)
			case <-again:
			}
		}
	}
	await("refused")
	_, _, err = c.LoadBalancer.AddService(t.Context(), b.LoadBalancer, api.LoadBalancerAddServiceOpts{
		Protocol: api.LoadBalancerServiceProtocolTCP, ListenPort: &port, DestinationPort: &to})
	must(err)
	await("ended")
	log.await(t, "load balancer: address 2001:db8:", 1) // the other one is no loopback
	_, err = k.DiscoveryV1().EndpointSlices("web").Create(t.Context(), &discoveryv1.EndpointSlice{
		ObjectMeta: meta, Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.244.0.5"}}}},
		metav1.CreateOptions{})
	must(err)
	await("kept")
	x.server.PowerOff(node.Server.ID)
	await("ended")
	_, _, err = c.LoadBalancer.DeleteService(t.Context(), b.LoadBalancer, port)
	must(err)
	await("refused")
}
