// Package identity makes the certificates of servers in the cluster, and the authorities that sign them, as
// certificate rotators and operators do.
package identity

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

// Identity is a server's certificate and the authority that signed it.
type Identity struct {
	Authority        []byte // PEM: the caBundle of a webhook
	Certificate, Key []byte // PEM
	Server           tls.Certificate
}

// Of reads an identity that New has made from a Secret; nil if there is none, or its
// authority is not good now.
func Of(data map[string][]byte, now time.Time) *Identity {
	i := &Identity{Authority: data["ca.crt"], Certificate: data[corev1.TLSCertKey],
		Key: data[corev1.TLSPrivateKeyKey]}
	server, err := tls.X509KeyPair(i.Certificate, i.Key)
	roots := x509.NewCertPool()
	if err != nil || !roots.AppendCertsFromPEM(i.Authority) {
		return nil
	}
	i.Server = server
	if _, err := server.Leaf.Verify(x509.VerifyOptions{Roots: roots, CurrentTime: now}); err != nil {
		return nil
	}
	return i
}

// Data is the identity as a Secret has it.
func (i *Identity) Data() map[string][]byte {
	return map[string][]byte{"ca.crt": i.Authority, corev1.TLSCertKey: i.Certificate,
		corev1.TLSPrivateKeyKey: i.Key}
}

// New makes the authority and the certificate that a rotator makes for a server of these names. The authority
// is good for as long as is left: less than nothing if it has expired.
func New(names []string, now time.Time, left time.Duration) (*Identity, error) {
	caKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	ca := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: names[0] + "-ca"},
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
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: names[0]}, DNSNames: names,
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
	i := &Identity{
		Authority:   pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: caDER}),
		Certificate: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		Key:         pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8}),
	}
	i.Server, err = tls.X509KeyPair(i.Certificate, i.Key)
	return i, err
}
