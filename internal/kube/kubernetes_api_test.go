package kube

import (
	"crypto/tls"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/zclconf/go-cty/cty"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ephemeral-castle/castle/internal/gate"
)

func TestKubernetesAPI(t *testing.T) {
	failing := "[+]ping ok\n[-]etcd failed: reason withheld\n[-]poststarthook/rbac/bootstrap-roles " +
		"failed: reason withheld\nreadyz check failed\n"
	runTrials(t, "kubernetes_api", []trial{
		{name: "ready", answers: map[string]answer{"/readyz": {200, "ok"}}},
		{
			name: "names the checks that fail", answers: map[string]answer{"/readyz": {500, failing}},
			want: "kubernetes API at HOST: not ready: etcd, poststarthook/rbac/bootstrap-roles",
		},
		{
			name: "something else answers", answers: map[string]answer{"/readyz": {200, "<html>"}},
			want: "kubernetes API at HOST: /readyz does not answer ok",
		},
		{
			name: "unavailable", answers: map[string]answer{"/readyz": failure(503,
				metav1.StatusReasonServiceUnavailable, "apiserver is shutting down")},
			want: "kubernetes API at HOST: not ready: 503 Service Unavailable",
		},
		{
			name: "credentials of nobody", answers: map[string]answer{"/readyz": failure(401,
				metav1.StatusReasonUnauthorized, "Unauthorized")},
			want:      "kubernetes API at HOST refuses the kubeconfig's user: /readyz: 401 Unauthorized",
			permanent: true,
		},
	})
}

func TestKubernetesAPIGoesThroughTheAddress(t *testing.T) {
	f := newFakeAPI(t)
	f.answer("/readyz", 200, "ok")
	_, port, err := net.SplitHostPort(f.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	// The kubeconfig's own server refuses, so only the address can have answered.
	elsewhere := kubeconfig("https://"+refusing(t), token, authorityOf(f))
	g := newGate(t, "kubernetes_api", elsewhere, map[string]cty.Value{"address": str("127.0.0.1:" + port)})
	expect(t, f, g.Check(t.Context()), "", false)

	// A machine's API server has its own port, whatever that of a load balancer is.
	balanced := kubeconfig("https://"+f.Listener.Addr().String(), token, authorityOf(f))
	g = newGate(t, "kubernetes_api", balanced,
		map[string]cty.Value{"endpoints": cty.ListVal([]cty.Value{str("127.0.7.77")})})
	expect(t, f, g.Check(t.Context()), "kubernetes API at 127.0.7.77:6443: connection refused", false)
}

func TestEveryEndpointOfKubernetesAPIHasToBeReady(t *testing.T) {
	f, second := newFakeAPI(t), newFakeAPI(t)
	f.answer("/readyz", 200, "ok")
	second.answer("/readyz", 200, "ok")
	of := func(f *fakeAPI) string { return f.Listener.Addr().String() }
	behind := func(endpoints ...string) gate.Gate {
		list := []cty.Value{}
		for _, e := range endpoints {
			list = append(list, str(e))
		}
		return newGate(t, "kubernetes_api", f.kubeconfig(),
			map[string]cty.Value{"endpoints": cty.ListVal(list)})
	}
	expect(t, f, behind(of(f), of(second)).Check(t.Context()), "", false)

	silent := refusing(t)
	expect(t, f, behind(of(f), silent, of(second)).Check(t.Context()),
		"kubernetes API at "+silent+": connection refused", false)

	second.answer("/readyz", 500, "[-]etcd failed: reason withheld\n")
	f.answer("/readyz", 500, "[-]etcd failed: reason withheld\n")
	expect(t, f, behind(of(f), of(second)).Check(t.Context()),
		"kubernetes API at HOST: not ready: etcd; kubernetes API at "+of(second)+": not ready: etcd", false)

	second.answer("/readyz", 403, "")
	expect(t, f, behind(of(second)).Check(t.Context()),
		"kubernetes API at HOST: not ready: etcd; kubernetes API at "+of(second)+" refuses the "+
			"kubeconfig's user: /readyz: 403 Forbidden", true)
}

func TestKubernetesAPIIsCheckedAgainOnceItListens(t *testing.T) {
	f, second := newFakeAPI(t), newFakeAPI(t)
	f.answer("/readyz", 200, "ok")
	second.answer("/readyz", 200, "ok")
	// The second control plane's address has no listener yet.
	later := refusing(t)
	g := newGate(t, "kubernetes_api", f.kubeconfig(),
		map[string]cty.Value{"endpoints": cty.ListVal([]cty.Value{str(later)})})
	closed, done := make(chan struct{}), make(chan error)
	go func() {
		done <- gate.Wait(t.Context(), g, onlyChanges(), gate.Listener{Answer: func(err error) {
			if err != nil {
				close(closed)
			}
		}})
	}()
	<-closed
	listener, err := net.Listen("tcp", later)
	noError(t, err)
	up := httptest.NewUnstartedServer(second.Config.Handler)
	up.Listener, up.TLS, up.Config.ErrorLog = listener, second.TLS.Clone(), f.Config.ErrorLog
	up.StartTLS()
	defer func() {
		up.CloseClientConnections()
		up.Close()
	}()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestAnEndpointOfAnotherClusterIsPermanent(t *testing.T) {
	f := newFakeAPI(t)
	f.answer("/readyz", 200, "ok")
	own, _ := issue(t, nil, 0)
	server, _ := issue(t, &own, 0)
	pair, err := tls.X509KeyPair(server.certificate, server.key)
	noError(t, err)
	other := httptest.NewUnstartedServer(http.NotFoundHandler())
	other.TLS = &tls.Config{Certificates: []tls.Certificate{pair}}
	other.Config.ErrorLog = f.Config.ErrorLog
	other.StartTLS()
	defer other.Close()
	host := other.Listener.Addr().String()
	g := newGate(t, "kubernetes_api", f.kubeconfig(),
		map[string]cty.Value{"endpoints": cty.ListVal([]cty.Value{str(host)})})
	expect(t, f, g.Check(t.Context()),
		"kubernetes API at "+host+": its certificate belongs to another cluster: the kubeconfig's "+
			"authority has not signed it", true)
}

func TestKubernetesAPIRefusesNoEndpoints(t *testing.T) {
	valid := gateType(t, "kubernetes_api").Attributes["endpoints"].Valid
	for name, tt := range map[string]struct {
		endpoint cty.Value
		good     bool
	}{"a host": {str("10.0.0.11"), true}, "a URL": {str("https://10.0.0.11"), false},
		"nothing": {cty.NullVal(cty.String), false}} {
		if err := valid(cty.ListVal([]cty.Value{tt.endpoint})); (err == nil) != tt.good {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestKubernetesAPIRefusesNoAddresses(t *testing.T) {
	valid := gateType(t, "kubernetes_api").Attributes["address"].Valid
	for _, good := range []string{"10.0.0.10", "10.0.0.10:6443", "fd00::10", "[fd00::10]:6443",
		"api.blue.example"} {
		if err := valid(str(good)); err != nil {
			t.Errorf("%s: %v", good, err)
		}
	}
	for _, bad := range []string{"", "https://10.0.0.10", "10.0.0.10/readyz", "a b", ":6443", "a:b:c"} {
		if valid(str(bad)) == nil {
			t.Errorf("%q is taken for an address", bad)
		}
	}
}

func TestEveryAttemptOfKubernetesAPIConnectsAnew(t *testing.T) {
	f := newFakeAPI(t)
	f.answer("/readyz", 200, "ok")
	g := newGate(t, "kubernetes_api", f.kubeconfig(), nil)
	for range 2 {
		expect(t, f, g.Check(t.Context()), "", false)
	}
	if len(f.from) != 2 || f.from[0] == f.from[1] {
		t.Errorf("two attempts came from %v, want two connections", f.from)
	}
}

func TestACertificateForOtherAddressesIsWaitedFor(t *testing.T) {
	f := newFakeAPI(t) // its certificate names 127.0.0.1, not 127.0.0.2
	_, port, err := net.SplitHostPort(f.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.2:"+port)
	if err != nil {
		t.Fatal(err)
	}
	second := httptest.NewUnstartedServer(http.NotFoundHandler())
	second.Listener, second.TLS, second.Config.ErrorLog = listener, f.TLS.Clone(), f.Config.ErrorLog
	second.StartTLS()
	defer second.Close()
	g := newGate(t, "kubernetes_api", f.kubeconfig(),
		map[string]cty.Value{"address": str("127.0.0.2:" + port)})
	err = g.Check(t.Context())
	if err == nil || gate.IsPermanent(err) ||
		!strings.Contains(err.Error(), "x509: certificate is valid for 127.0.0.1") {
		t.Errorf("got %v", err)
	}
}
