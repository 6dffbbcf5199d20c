package cluster

import (
	"crypto/ed25519"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"math/big"
	"slices"
	"testing"
	"time"

	"github.com/ephemeral-castle/castle/internal/gate"
)

// certificate returns a certificate in PEM and base64 that is valid for so long.
func certificate(t *testing.T, remaining time.Duration) string {
	t.Helper()
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(remaining)}
	der, err := x509.CreateCertificate(nil, template, template, public, private)
	if err != nil {
		t.Fatal(err)
	}
	return base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

func TestClientCertificatesThatExpireSoonAreTold(t *testing.T) {
	const day = 24 * time.Hour
	line := func(file, verb string, remaining time.Duration) []string {
		return []string{"the client certificate of the " + file + " " + verb + " on " +
			time.Now().Add(remaining).UTC().Format(time.DateOnly) + "; to renew it: castle create blue " +
			"--refresh --to platform"}
	}
	for name, test := range map[string]struct {
		kube, talos time.Duration
		want        []string
	}{
		"neither":                     {31 * day, 365 * day, nil},
		"the kubeconfig's":            {29 * day, 31 * day, line("kubeconfig", "expires", 29*day)},
		"the talosconfig's, long ago": {31 * day, -2 * day, line("talosconfig", "has expired", -2*day)},
	} {
		t.Run(name, func(t *testing.T) {
			target := gate.Target{
				Kubeconfig: fmt.Appendf(nil, "{apiVersion: v1, kind: Config, users: [{name: token, user: "+
					"{token: abc}}, {name: admin, user: {client-certificate-data: %s}}]}",
					certificate(t, test.kube)),
				Talosconfig: fmt.Appendf(nil, "{context: a, contexts: {a: {crt: %s}}}",
					certificate(t, test.talos)),
			}
			if got := Expiring(target, "castle create blue"); !slices.Equal(got, test.want) {
				t.Errorf("got %q\nwant %q", got, test.want)
			}
		})
	}
	for _, text := range []string{"", "the kubeconfig", "contexts: {a: null}", "contexts: {a: {crt: '!'}}"} {
		target := gate.Target{Kubeconfig: []byte(text), Talosconfig: []byte(text)}
		if got := Expiring(target, "castle create blue"); len(got) > 0 {
			t.Errorf("%q: %q", text, got)
		}
	}
}
