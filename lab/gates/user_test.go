package gates_test

import (
	"context"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/ephemeral-castle/castle/internal/gate"
)

// as returns the plane with the kubeconfig of another user.
func (p *plane) as(t testing.TB, user *clientcmdapi.AuthInfo, authority []byte) *plane {
	t.Helper()
	config, err := clientcmd.Load(p.cluster.Kubeconfig)
	check(t, err)
	at := config.Contexts[config.CurrentContext]
	config.AuthInfos[at.AuthInfo] = user
	if authority != nil {
		config.Clusters[at.Cluster].CertificateAuthorityData = authority
	}
	other := *p
	cluster := *p.cluster
	cluster.Kubeconfig, err = clientcmd.Write(*config)
	check(t, err)
	other.cluster = &cluster
	return &other
}

func TestAGateStopsWhereItsUserMayNotLook(t *testing.T) {
	p := control(t)
	ns := p.namespace(t)
	p.create(t, ns, `{apiVersion: v1, kind: ServiceAccount, metadata: {name: guest, namespace: NAMESPACE}}`)
	token, err := p.cluster.Client.CoreV1().ServiceAccounts(ns).CreateToken(t.Context(), "guest",
		&authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	check(t, err)
	guest := p.as(t, &clientcmdapi.AuthInfo{Token: token.Status.Token}, nil)
	user := `User "system:serviceaccount:` + ns + `:guest" cannot `
	refuses := "kubernetes API at " + p.cluster.REST.Host[len("https://"):] +
		" refuses the kubeconfig's user: "
	hopeless(t, guest.gate(t, "nodes", args{"count": number(1)}),
		refuses+`nodes is forbidden: `+user+`list resource "nodes" in API group "" at the cluster scope`)
	hopeless(t, guest.gate(t, "crd", args{"names": texts("a.example.org")}),
		refuses+`customresourcedefinitions.apiextensions.k8s.io "a.example.org" is forbidden: `+user+
			`get resource "customresourcedefinitions" in API group "apiextensions.k8s.io" at the cluster `+
			`scope`)
	hopeless(t, p.as(t, &clientcmdapi.AuthInfo{Token: "of nobody"}, nil).gate(t, "nodes",
		args{"count": number(1)}), refuses+"Unauthorized")
}

func TestAGateStopsAtAnotherCluster(t *testing.T) {
	p := control(t)
	other, err := newAuthority("another cluster")
	check(t, err)
	g := p.as(t, &clientcmdapi.AuthInfo{Token: "of nobody"}, other.Certificate).gate(t, "kubernetes_api", nil)
	hopeless(t, g, "kubernetes API at "+p.cluster.REST.Host[len("https://"):]+
		": its certificate belongs to another cluster: the kubeconfig's authority has not signed it")
}

// A cancelled check is neither a result nor a success.
func TestAGateThatIsStoppedSaysSo(t *testing.T) {
	p := control(t)
	g := p.gate(t, "nodes", args{"count": number(1)})
	ctx, stop := context.WithCancel(t.Context())
	closed := make(chan error, 1)
	err := gate.Wait(ctx, g, soon(), gate.Listener{Answer: func(err error) { closed <- err; stop() }})
	if answer := <-closed; answer == nil || err != context.Canceled {
		t.Fatalf("it answered %v and ended with %v", answer, err)
	}
}
