package kube

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"testing"
	"time"
)

func TestClusterIdentityIsTheAuthority(t *testing.T) {
	one, two := authority(t), authority(t)
	first := identity(t, kubeconfig("https://127.0.0.1:6443", "a", one))
	if again := identity(t, kubeconfig("https://127.0.0.9:6443", "b",
		append([]byte("\n"), one...))); again != first {
		t.Error("another address, user or line end makes another cluster")
	}
	if identity(t, kubeconfig("https://127.0.0.1:6443", "a", two)) == first {
		t.Error("another authority is the same cluster")
	}
	if _, err := ClusterIdentity(kubeconfig("https://127.0.0.1:6443", "a", nil)); err == nil {
		t.Error("a kubeconfig without an authority has an identity")
	}
}

func identity(t *testing.T, kubeconfig []byte) string {
	t.Helper()
	id, err := ClusterIdentity(kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func authorityOf(f *fakeAPI) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: f.Certificate().Raw})
}

// authority makes a certificate authority that has signed nothing.
func authority(t *testing.T) []byte { return authorityUntil(t, time.Now().Add(time.Hour)) }

func authorityUntil(t *testing.T, end time.Time) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "another cluster"},
		NotBefore: end.Add(-24 * time.Hour), NotAfter: end,
		IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}
