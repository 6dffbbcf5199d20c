package tls

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zclconf/go-cty/cty"

	"github.com/ephemeral-castle/castle/lab/internal/providers/plugin"
	"github.com/ephemeral-castle/castle/lab/internal/providers/plugin/plugintest"
)

// authority returns a CA as text, with a key under the given preamble.
func authority(t *testing.T, preamble string) (cert, key string) {
	t.Helper()
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	ca := &x509.Certificate{SerialNumber: big.NewInt(1), IsCA: true, BasicConstraintsValid: true,
		NotAfter: time.Now().AddDate(10, 0, 0)}
	der, err := x509.CreateCertificate(rand.Reader, ca, ca, public, private)
	if err != nil {
		t.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})),
		string(pem.EncodeToMemory(&pem.Block{Type: preamble, Bytes: pkcs8}))
}

// requested returns a request for a certificate of an organization.
func requested(t *testing.T, organization string) cty.Value {
	t.Helper()
	key := plugintest.New(t, New(), "tls_private_key")
	if d := key.Apply(plugin.Values{"algorithm": cty.StringVal("ED25519")}); len(d) > 0 {
		t.Fatal(d[0].Detail)
	}
	request := plugintest.New(t, New(), "tls_cert_request")
	config := plugin.Values{"private_key_pem": key.State.GetAttr("private_key_pem"),
		"subject": plugin.Object(plugin.Values{"organization": cty.StringVal(organization)})}
	if d := request.Apply(config); len(d) > 0 {
		t.Fatal(d[0].Detail)
	}
	request.Settled(config)
	return request.State.GetAttr("cert_request_pem")
}

func TestACertificateIsSignedAndReplacedBeforeItExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ca, key := authority(t, "PRIVATE KEY")
		config := plugin.Values{
			"cert_request_pem": requested(t, "os:admin"), "ca_cert_pem": cty.StringVal(ca),
			"ca_private_key_pem": cty.StringVal(key), "validity_period_hours": cty.NumberIntVal(8760),
			"early_renewal_hours": cty.NumberIntVal(720),
			"allowed_uses":        cty.ListVal([]cty.Value{cty.StringVal("client_auth")}),
		}
		r := plugintest.New(t, New(), "tls_locally_signed_cert")
		if d := r.Apply(config); len(d) > 0 {
			t.Fatal(d[0].Detail)
		}
		r.Settled(config)
		block, _ := pem.Decode([]byte(r.State.GetAttr("cert_pem").AsString()))
		got, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			t.Fatal(err)
		}
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM([]byte(ca))
		if _, err := got.Verify(x509.VerifyOptions{Roots: roots,
			KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}); err != nil {
			t.Error(err)
		}
		if !slices.Equal(got.Subject.Organization, []string{"os:admin"}) {
			t.Errorf("it is of %v", got.Subject)
		}
		time.Sleep(8760*time.Hour - 720*time.Hour)
		p, d := r.Plan(config)
		if len(d) > 0 || !slices.Equal(p.Replaces, []string{`AttributeName("ready_for_renewal")`}) {
			t.Errorf("%v, replaces %v", d, p.Replaces)
		}
	})
}

func TestAKeyUnderAnotherNameIsRefused(t *testing.T) {
	ca, key := authority(t, "ED25519 PRIVATE KEY")
	r := plugintest.New(t, New(), "tls_locally_signed_cert")
	d := r.Apply(plugin.Values{
		"cert_request_pem": requested(t, "a"), "ca_cert_pem": cty.StringVal(ca),
		"ca_private_key_pem": cty.StringVal(key), "validity_period_hours": cty.NumberIntVal(1),
		"allowed_uses": cty.ListVal([]cty.Value{cty.StringVal("client_auth")}),
	})
	if len(d) != 1 || d[0].Summary != "Failed to parse CA private key PEM" {
		t.Errorf("got %v", d)
	}
}
