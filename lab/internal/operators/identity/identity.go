package operators

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// identity is a webhook server's certificate and the authority that signed it.
type identity struct {
	authority        []byte // PEM: the caBundle
	certificate, key []byte // PEM
	server           tls.Certificate
}

// identityOf reads an identity that newIdentity has made from a Secret; nil if there is none, or its
// authority is not good now.
func identityOf(data map[string][]byte, now time.Time) *identity {
	i := &identity{authority: data["ca.crt"], certificate: data[corev1.TLSCertKey],
		key: data[corev1.TLSPrivateKeyKey]}
	server, err := tls.X509KeyPair(i.certificate, i.key)
	roots := x509.NewCertPool()
	if err != nil || !roots.AppendCertsFromPEM(i.authority) {
		return nil
	}
	i.server = server
	if _, err := server.Leaf.Verify(x509.VerifyOptions{Roots: roots, CurrentTime: now}); err != nil {
		return nil
	}
	return i
}

// newIdentity makes the authority and the certificate that a certificate
// rotator makes for a Service. The authority is good for as long as is left: less
// than nothing if it has expired.
func newIdentity(namespace, service string, now time.Time, left time.Duration) (*identity, error) {
	caKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	ca := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: service + "-ca"},
		NotBefore: now.Add(left).AddDate(-1, 0, -1), NotAfter: now.Add(left),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	caDER, err := x509.CreateCertificate(rand.Reader, ca, ca, &caKey.PublicKey, caKey)
	if err != nil {
		return nil, err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	name := service + "." + namespace + ".svc"
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name},
		NotBefore: now.Add(-time.Hour), NotAfter: now.AddDate(1, 0, 0),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, leaf, ca, &key.PublicKey, caKey)
	if err != nil {
		return nil, err
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	i := &identity{
		authority:   pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: caDER}),
		certificate: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		key:         pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8}),
	}
	i.server, err = tls.X509KeyPair(i.certificate, i.key)
	return i, err
}
