package expiry

import (
	"crypto/ed25519"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"testing"
	"time"
)

const day = 24 * time.Hour

// certificate returns a certificate in PEM that was issued and expires so long from now.
func certificate(t *testing.T, issued, expires time.Duration) []byte {
	t.Helper()
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(issued),
		NotAfter: time.Now().Add(expires)}
	der, err := x509.CreateCertificate(nil, template, template, public, private)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

func TestWhatExpiresSoonWarns(t *testing.T) {
	for name, test := range map[string]struct {
		issued, expires time.Duration
		want            string
	}{
		"a year's certificate, in time":         {-300 * day, 65 * day, Valid},
		"a year's certificate, in its last":     {-336 * day, 29 * day, Soon},
		"long over":                             {-400 * day, -35 * day, Expired},
		"a token of a day, right after its own": {0, day, Valid},
		"a token of a day, in its last hours":   {-17 * time.Hour, 7 * time.Hour, Soon},
	} {
		t.Run(name, func(t *testing.T) {
			i := ofCertificates(Item{Name: "thing"}, certificate(t, test.issued, test.expires))
			if got := i.at(time.Now()); got.State != test.want {
				t.Errorf("got %s, want %s", got.State, test.want)
			}
		})
	}
	if got := (Item{}).at(time.Now()); got.State != Never || got.Warns() {
		t.Errorf("without an end: %s", got.State)
	}
}

// While an authority is replaced, a bundle has the old one beside the new one.
func TestTheLastCertificateOfABundleCounts(t *testing.T) {
	bundle := append(certificate(t, -365*day, -day), certificate(t, 0, 365*day)...)
	i := ofCertificates(Item{}, bundle, []byte("noise")).at(time.Now())
	if i.State != Valid || i.Issued.IsZero() {
		t.Errorf("got %+v", i)
	}
}

func TestWithoutACertificateNothingIsFine(t *testing.T) {
	for _, text := range []string{"", "the kubeconfig",
		"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"} {
		if i := ofCertificates(Item{}, []byte(text)).at(time.Now()); i.State != NotChecked || i.Reason == "" {
			t.Errorf("%q: %+v", text, i)
		}
	}
}
