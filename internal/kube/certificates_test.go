package kube

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/zclconf/go-cty/cty"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// issued is a certificate with its key, both as PEM.
type issued struct{ certificate, key []byte }

// issue signs a certificate with another, or with itself if that is nil, for a
// time round now that is shifted.
func issue(t *testing.T, signer *issued, shift time.Duration) (issued, time.Time) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	noError(t, err)
	now := time.Now().Truncate(time.Second)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "blue"},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore:   now.Add(shift - time.Hour), NotAfter: now.Add(shift + time.Hour),
		IsCA: signer == nil, BasicConstraintsValid: true,
	}
	parent, with := template, key
	if signer != nil {
		pair, err := tls.X509KeyPair(signer.certificate, signer.key)
		noError(t, err)
		parent, with = pair.Leaf, pair.PrivateKey.(*ecdsa.PrivateKey)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), with)
	noError(t, err)
	bare, err := x509.MarshalPKCS8PrivateKey(key)
	noError(t, err)
	return issued{
		pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: bare}),
	}, template.NotAfter
}

func noError(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestACertificateThatIsOutOfDateIsNamed(t *testing.T) {
	const day = 24 * time.Hour
	for name, tt := range map[string]struct {
		authority, server time.Duration // from now
		want              func(authority, server time.Time) string
		permanent         bool
	}{
		"the API's": {0, -day, func(_, server time.Time) string {
			return "its certificate has expired on " + server.UTC().Format(time.RFC3339)
		}, false},
		"the API's, not valid yet": {0, day, func(_, server time.Time) string {
			return "its certificate is not valid before " +
				server.Add(-2*time.Hour).UTC().Format(time.RFC3339) + ": a clock is wrong, here or there"
		}, false},
		"the cluster's authority": {-day, 0, func(authority, _ time.Time) string {
			return "the kubeconfig's authority has expired on " + authority.UTC().Format(time.RFC3339)
		}, true},
		"the cluster's authority, not valid yet": {day, 0, func(authority, _ time.Time) string {
			return "the kubeconfig's authority is not valid before " +
				authority.Add(-2*time.Hour).UTC().Format(time.RFC3339) + ": a clock is wrong, here or there"
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			authority, authorityEnds := issue(t, nil, tt.authority)
			server, serverEnds := issue(t, &authority, tt.server)
			pair, err := tls.X509KeyPair(server.certificate, server.key)
			noError(t, err)
			api := httptest.NewUnstartedServer(http.NotFoundHandler())
			api.TLS = &tls.Config{Certificates: []tls.Certificate{pair}}
			api.Config.ErrorLog = log.New(io.Discard, "", 0)
			api.StartTLS()
			defer api.Close()
			g := newGate(t, "nodes", kubeconfig(api.URL, token, authority.certificate),
				map[string]cty.Value{"count": num(1)})
			want := "kubernetes API at " + api.Listener.Addr().String() + ": " +
				tt.want(authorityEnds, serverEnds)
			expect(t, nil, g.Check(t.Context()), want, tt.permanent)
		})
	}
}

func TestAKubeconfigThatHasExpiredIsNamed(t *testing.T) {
	f := newFakeAPI(t)
	unknown := failure(401, metav1.StatusReasonUnauthorized, "Unauthorized")
	f.answer("/api/v1/nodes", unknown.code, unknown.body)
	f.answer("/readyz", unknown.code, unknown.body)
	user, ends := issue(t, nil, -24*time.Hour)
	for name, arguments := range map[string]map[string]cty.Value{"nodes": {"count": num(1)},
		"kubernetes_api": nil} {
		g := newGate(t, name, kubeconfigOf(f.URL, authorityOf(f), user), arguments)
		expect(t, f, g.Check(t.Context()),
			"kubernetes API at HOST refuses the kubeconfig's user: "+
				"its certificate has expired on "+ends.UTC().Format(time.RFC3339), true)
	}
}

// kubeconfigOf is for a user with a certificate.
func kubeconfigOf(server string, authority []byte, user issued) []byte {
	encode := base64.StdEncoding.EncodeToString
	return fmt.Appendf(nil, `apiVersion: v1
kind: Config
current-context: blue
clusters:
- name: blue
  cluster: {server: %q, certificate-authority-data: %s}
contexts:
- name: blue
  context: {cluster: blue, user: admin}
users:
- name: admin
  user: {client-certificate-data: %s, client-key-data: %s}
`, server, encode(authority), encode(user.certificate), encode(user.key))
}
