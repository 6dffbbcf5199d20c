package kube

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/zclconf/go-cty/cty"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/kube/client"
	"github.com/ephemeral-castle/castle/internal/kube/gates"
)

func TestAnUnreachableAPIIsWaitedFor(t *testing.T) {
	host := refusing(t)
	g := newGate(t, "nodes", kubeconfig("https://"+host, token, authority(t)),
		map[string]cty.Value{"count": num(1)})
	expect(t, nil, g.Check(t.Context()), "kubernetes API at "+host+": connection refused", false)
}

func TestACertificateOfAnotherClusterIsPermanent(t *testing.T) {
	f := newFakeAPI(t)
	f.answer("/readyz", 200, "ok")
	g := newGate(t, "kubernetes_api", kubeconfig(f.URL, token, authority(t)), nil)
	expect(t, f, g.Check(t.Context()),
		"kubernetes API at HOST: its certificate belongs to another cluster: the kubeconfig's authority "+
			"has not signed it", true)
	if len(f.asked) > 0 {
		t.Errorf("the token was sent to another cluster: %v", f.asked)
	}
}

func TestMissingPermissionsArePermanent(t *testing.T) {
	f := newFakeAPI(t)
	no := failure(403, metav1.StatusReasonForbidden,
		`nodes is forbidden: User "guest" cannot list resource "nodes"`)
	f.answer("/api/v1/nodes", no.code, no.body)
	g := newGate(t, "nodes", f.kubeconfig(), map[string]cty.Value{"count": num(1)})
	expect(t, f, g.Check(t.Context()),
		`kubernetes API at HOST refuses the kubeconfig's user: nodes is forbidden: User "guest" cannot `+
			`list resource "nodes"`, true)
}

func TestAdmissionErrorsAreNotPermanent(t *testing.T) {
	for _, message := range []string{
		`pods "web" is forbidden: not yet ready to handle request`,
		`pods "web" is forbidden: unable to create new content in namespace web because it is being ` +
			`terminated`,
		`pods "web" is forbidden: error looking up service account web/default: serviceaccount "default" ` +
			`not found`,
	} {
		f := newFakeAPI(t)
		no := failure(403, metav1.StatusReasonForbidden, message)
		f.answer("/api/v1/nodes", no.code, no.body)
		g := newGate(t, "nodes", f.kubeconfig(), map[string]cty.Value{"count": num(1)})
		expect(t, f, g.Check(t.Context()), "kubernetes API at HOST: "+message, false)
	}
}

func TestAHangingAPICostsOneAttempt(t *testing.T) {
	c, host := hanging(t)
	c.Attempt = 20 * time.Millisecond
	err := c.Check(gates.Ready)(t.Context())
	expect(t, nil, err, "kubernetes API at "+host+": no answer within 20ms", false)
}

func TestAnAttemptThatTheCallerEndsIsTheCallers(t *testing.T) {
	c, _ := hanging(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := c.Check(gates.Ready)(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want the cancellation", err)
	}
	ctx, stop := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer stop()
	if err := c.Check(gates.Ready)(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want the caller's deadline, which gate.Wait knows", err)
	}
}

func TestAnUnreadableKubeconfigIsPermanent(t *testing.T) {
	for name, tt := range map[string]struct{ kubeconfig, want string }{
		"none":       {"", "kubeconfig: no platform has output one yet"},
		"unreadable": {"users: [{token: hunter2-is-secret", "kubeconfig: is not valid YAML of kind Config"},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGate(t, "nodes", []byte(tt.kubeconfig), map[string]cty.Value{"count": num(1)})
			expect(t, nil, g.Check(t.Context()), tt.want, true)
		})
	}
}

func TestTheEnvironmentDoesNotChangeTheCluster(t *testing.T) {
	f := newFakeAPI(t)
	f.answer("/readyz", 200, "ok")
	t.Setenv("HTTPS_PROXY", "http://"+refusing(t))
	t.Setenv("KUBECONFIG", "/nowhere")
	t.Setenv("KUBERNETES_SERVICE_HOST", "127.0.0.9")
	expect(t, f, newGate(t, "kubernetes_api", f.kubeconfig(), nil).Check(t.Context()), "", false)
}

// refusing returns a loopback address without a listener.
func refusing(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close() //nolint:errcheck // it has done its work
	return l.Addr().String()
}

// hanging returns a cluster that accepts connections and never answers.
func hanging(t *testing.T) (*client.Cluster, string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() }) //nolint:errcheck // the test is over
	host := l.Addr().String()
	return client.New(gate.Target{Kubeconfig: kubeconfig("https://"+host, token, authority(t))}, ""), host
}
