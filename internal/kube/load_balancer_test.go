package kube

import (
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/zclconf/go-cty/cty"
)

func TestLoadBalancer(t *testing.T) {
	const at = "/api/v1/namespaces/traefik/services/traefik"
	asks := map[string]cty.Value{"namespace": str("traefik"), "service": str("traefik")}
	service := func(annotations, spec, ingress string) []fixture {
		return []fixture{{at, "{kind: Service, metadata: {annotations: {" + annotations + "}}, spec: {" +
			spec +
			"}, status: {loadBalancer: {" + ingress + "}}}"}}
	}
	const balanced, given = "type: LoadBalancer", "ingress: [{ip: 192.0.2.30}]"
	const both = "ingress: [{ip: 192.0.2.30}, {ip: '2001:db8::1'}]"
	const present, former = "metallb.io/loadBalancerIPs: ", "metallb.universe.tf/loadBalancerIPs: "
	what := "service traefik/traefik: "
	runTrials(t, "load_balancer", []trial{
		{name: "any address, as nothing was asked", arguments: asks, objects: service("", balanced, given)},
		{name: "a name, as nothing was asked", arguments: asks,
			objects: service("", balanced, "ingress: [{hostname: lb.example.org}]")},
		{name: "the gate's address", arguments: with(asks, "address", str("192.0.2.30")),
			objects: service("", balanced, given)},
		{name: "the gate's address, written otherwise",
			arguments: with(asks, "address", str("2001:db8:0::1")), objects: service("", balanced, both)},
		{name: "the annotation's", arguments: asks, objects: service(present+"192.0.2.30", balanced, given)},
		{name: "the former annotation's", arguments: asks,
			objects: service(former+"192.0.2.30", balanced, given)},
		{name: "the spec's", arguments: asks,
			objects: service("", balanced+", loadBalancerIP: 192.0.2.30", given)},
		{name: "one of each family", arguments: asks,
			objects: service(present+"'192.0.2.30, 2001:db8::1'", balanced, both)},
		{name: "missing", arguments: asks, want: "service traefik/traefik does not exist yet"},
		{name: "no address", arguments: asks, objects: service("", balanced, ""), want: what +
			"has no address yet"},
		{name: "no address, one was asked for", arguments: asks, objects: service(present+"192.0.2.30",
			balanced, ""), want: what + "has no address yet, and requests 192.0.2.30"},
		{name: "not the gate's", arguments: with(asks, "address", str("192.0.2.31")),
			objects: service(present+"192.0.2.30", balanced, given), want: what +
				"has 192.0.2.30, not 192.0.2.31"},
		{name: "not the annotation's", arguments: asks, objects: service(present+"192.0.2.31", balanced,
			given), want: what + "has 192.0.2.30, not 192.0.2.31"},
		{name: "not the former annotation's", arguments: asks, objects: service(former+"192.0.2.31", balanced,
			given), want: what + "has 192.0.2.30, not 192.0.2.31"},
		{name: "not the spec's", arguments: asks, objects: service("",
			balanced+", loadBalancerIP: 192.0.2.31", given), want: what + "has 192.0.2.30, not 192.0.2.31"},
		{name: "only one family", arguments: asks, objects: service(present+"'192.0.2.30,2001:db8::1'",
			balanced, given), want: what + "has 192.0.2.30, not 2001:db8::1"},
		{name: "inside the cluster only", arguments: asks,
			objects: service("", "type: ClusterIP, clusterIP: 10.96.0.9", ""), want: what +
				"is of type ClusterIP, not LoadBalancer"},
		{
			name: "being deleted", arguments: asks, want: what + "is being deleted",
			objects: []fixture{{at, "{kind: Service, " +
				"metadata: {deletionTimestamp: '2026-01-01T00:00:00Z'}, " +
				"spec: {type: LoadBalancer}, status: {loadBalancer: {ingress: [{ip: 192.0.2.30}]}}}"}},
		},
	})
	for _, bad := range []string{"", "traefik.example.org", "192.0.2.30:443", "192.0.2.0/24"} {
		if gateType(t, "load_balancer").Attributes["address"].Valid(str(bad)) == nil {
			t.Errorf("address %q is accepted", bad)
		}
	}
}

// balancer is a load balancer on the loopback: it closes each connection while no target is healthy.
func balancer(t *testing.T) (port int, healthy *atomic.Bool) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	healthy, held := &atomic.Bool{}, make(chan net.Conn, 100)
	go func() {
		defer close(held)
		for {
			c, err := l.Accept()
			switch {
			case err != nil:
				return
			case healthy.Load():
				held <- c
			default:
				c.Close()
			}
		}
	}()
	t.Cleanup(func() {
		l.Close()
		for c := range held {
			c.Close()
		}
	})
	return l.Addr().(*net.TCPAddr).Port, healthy
}

// A load balancer accepts connections as soon as it listens. That it keeps them shows a healthy target.
func TestALoadBalancerAnswersOnceATargetIsHealthy(t *testing.T) {
	port, healthy := balancer(t)
	f := newFakeAPI(t)
	serves := func(addresses, ports string) {
		f.add(t, "/api/v1/namespaces/web/services/shop", "{kind: Service, spec: {type: LoadBalancer, "+
			"ports: ["+ports+"]}, status: {loadBalancer: {ingress: ["+addresses+"]}}}")
	}
	both, here := "{ip: 127.0.0.1}, {ip: 127.0.0.2}", fmt.Sprintf("{protocol: TCP, port: %d}", port)
	asks := map[string]cty.Value{"namespace": str("web"), "service": str("shop")}
	answers := with(asks, "answers", cty.True)
	look := func(arguments map[string]cty.Value, want string) {
		t.Helper()
		err := newGate(t, "load_balancer", f.kubeconfig(), arguments).Check(t.Context())
		expect(t, f, err, strings.ReplaceAll(want, "PORT", fmt.Sprint(port)), false)
	}
	serves(both, here)
	look(asks, "")
	const closed = "service web/shop: no answer at its address: 127.0.0.1:PORT: takes connections and ends " +
		"them at once; 127.0.0.2:PORT: connection refused"
	look(answers, closed)
	serves(both, "{protocol: UDP, port: 53}")
	look(answers, "")
	healthy.Store(true)
	serves("{ip: 127.0.0.2}, {ip: 127.0.0.1}", "{protocol: TCP, port: 1}, "+here)
	look(answers, "")
	look(with(answers, "address", str("127.0.0.2")), "service web/shop: no answer at its address: "+
		"127.0.0.2:1: connection refused; 127.0.0.2:PORT: connection refused")
}
