package talos

import (
	"crypto/tls"
	stdx509 "crypto/x509"
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/siderolabs/crypto/x509"
	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/configloader"
)

// installed is a machine configuration that Talos has accepted.
type installed struct {
	config       config.Provider
	controlPlane bool
	hostname     string // empty unless the configuration names one
	ca           string // the issuing CA's certificate, which also tells clusters apart
	caKey        []byte // on control planes
	accepted     []byte // certificates that clients' certificates may descend from
	sans         []string
}

// cloud is the platform of a virtual machine that boots an installed image
// (nocloud): unlike bare metal it demands no install section.
type cloud struct{}

func (cloud) String() string        { return "cloud" }
func (cloud) RequiresInstall() bool { return false }
func (cloud) InContainer() bool     { return false }

// parse reads a machine configuration and judges it as Talos does.
func parse(data []byte) (_ *installed, warnings []string, _ error) {
	provider, err := configloader.NewFromBytes(data)
	if err != nil {
		return nil, nil, err
	}
	warnings, err = provider.Validate(cloud{})
	if err != nil {
		return nil, nil, err
	}
	if !provider.CompleteForBoot() {
		return nil, warnings, nil
	}
	security := provider.Machine().Security()
	c := &installed{
		config:       provider,
		controlPlane: provider.Machine().Type().IsControlPlane(),
		sans:         security.CertSANs(),
	}
	if h := provider.NetworkHostnameConfig(); h != nil {
		c.hostname = h.Hostname()
	}
	var accepted []string
	for _, ca := range security.AcceptedCAs() {
		accepted = append(accepted, string(ca.Crt))
	}
	if ca := security.IssuingCA(); ca != nil {
		c.ca, c.caKey = strings.TrimSpace(string(ca.Crt)), ca.Key
		accepted = append(accepted, string(ca.Crt))
	}
	c.accepted = []byte(strings.Join(accepted, "\n"))
	return c, warnings, nil
}

// serverTLS makes the configured API's TLS: a certificate of the signer's CA for
// the machine, and client certificates of a CA that the configuration accepts.
func (c *installed) serverTLS(signer *installed) tlsSource {
	return func(m *machine) (*tls.Config, error) {
		ca, err := x509.NewCertificateAuthorityFromCertificateAndKey(
			&x509.PEMEncodedCertificateAndKey{Crt: []byte(signer.ca), Key: signer.caKey})
		if err != nil {
			return nil, fmt.Errorf("machine CA: %w", err)
		}
		clients := stdx509.NewCertPool()
		if !clients.AppendCertsFromPEM(c.accepted) {
			return nil, errors.New("machine CA: no certificate in it")
		}
		t, err := serverTLS(ca, m, c.sans)
		if err != nil {
			return nil, err
		}
		t.ClientAuth, t.ClientCAs = tls.RequireAndVerifyClientCert, clients
		return t, nil
	}
}

// maintenanceTLS makes the TLS of maintenance mode: a certificate that nobody
// can know, and no interest in the client's.
func maintenanceTLS(m *machine) (*tls.Config, error) {
	ca, err := x509.NewSelfSignedCertificateAuthority(x509.Organization("talos"))
	if err != nil {
		return nil, fmt.Errorf("maintenance CA: %w", err)
	}
	return serverTLS(ca, m, nil)
}

func serverTLS(ca *x509.CertificateAuthority, m *machine, more []string) (*tls.Config, error) {
	ips, names := []net.IP{net.ParseIP(m.Address)}, []string{m.hostname()}
	for _, san := range more {
		if ip := net.ParseIP(san); ip != nil {
			ips = append(ips, ip)
		} else {
			names = append(names, san)
		}
	}
	pair, err := x509.NewKeyPair(ca,
		x509.CommonName(m.hostname()), x509.IPAddresses(ips), x509.DNSNames(names),
		x509.KeyUsage(stdx509.KeyUsageDigitalSignature),
		x509.ExtKeyUsage([]stdx509.ExtKeyUsage{stdx509.ExtKeyUsageServerAuth}))
	if err != nil {
		return nil, fmt.Errorf("server certificate: %w", err)
	}
	return &tls.Config{Certificates: []tls.Certificate{*pair.Certificate}, MinVersion: tls.VersionTLS13}, nil
}
