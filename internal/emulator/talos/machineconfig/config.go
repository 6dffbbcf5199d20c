// Package machineconfig reads machine configurations as Talos does: what is valid, what a change of one
// needs, and what a machine and its Kubernetes follow from it.
package machineconfig

import (
	"crypto/tls"
	stdx509 "crypto/x509"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/siderolabs/crypto/x509"
	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/configloader"
)

// VirtualIP is a virtual address as a machine's configuration names it.
type VirtualIP struct {
	Address netip.Addr
	Link    string
}

// VirtualIPs lists the virtual addresses of both kinds of configuration document.
func (c *Config) VirtualIPs() []VirtualIP {
	var list []VirtualIP
	add := func(address, link string) {
		if a, err := netip.ParseAddr(address); err == nil {
			list = append(list, VirtualIP{a, link})
		}
	}
	for _, d := range c.Provider.Machine().Network().Devices() {
		if d.VIPConfig() != nil {
			add(d.VIPConfig().IP(), d.Interface())
		}
		for _, vlan := range d.Vlans() {
			if vlan.VIPConfig() != nil {
				add(vlan.VIPConfig().IP(), fmt.Sprintf("%s.%d", d.Interface(), vlan.ID()))
			}
		}
	}
	for _, v := range c.Provider.NetworkVirtualIPConfigs() {
		list = append(list, VirtualIP{v.VIP(), v.Link()})
	}
	return list
}

// Config is a machine configuration that Talos has accepted.
type Config struct {
	Provider     config.Provider
	ControlPlane bool
	Hostname     string // empty unless the configuration names one
	CA           string // the issuing CA's certificate, which also identifies the cluster
	caKey        []byte // on control planes
	accepted     []byte // CA certificates for clients
	sans         []string
}

// cloud is the platform of a virtual machine that boots an installed image
// (nocloud): unlike bare metal it demands no install section.
type cloud struct{}

func (cloud) String() string { return "cloud" }

func (cloud) RequiresInstall() bool { return false }

func (cloud) InContainer() bool { return false }

// Parse reads and validates a machine configuration as Talos does.
func Parse(data []byte) (_ *Config, warnings []string, _ error) {
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
	c := &Config{
		Provider:     provider,
		ControlPlane: provider.Machine().Type().IsControlPlane(),
		sans:         security.CertSANs(),
	}
	if h := provider.NetworkHostnameConfig(); h != nil {
		c.Hostname = h.Hostname()
	}
	var accepted []string
	for _, ca := range security.AcceptedCAs() {
		accepted = append(accepted, string(ca.Crt))
	}
	if ca := security.IssuingCA(); ca != nil {
		c.CA, c.caKey = strings.TrimSpace(string(ca.Crt)), ca.Key
		accepted = append(accepted, string(ca.Crt))
	}
	c.accepted = []byte(strings.Join(accepted, "\n"))
	return c, warnings, nil
}

// ServesAs reports whether a machine's API has the same certificate and clients with another configuration.
func (c *Config) ServesAs(other *Config) bool {
	return c.CA == other.CA && slices.Equal(c.accepted, other.accepted) && slices.Equal(c.sans, other.sans)
}

// ServerTLS is the TLS of the API of a machine with this configuration; nil in maintenance mode. Without a
// signer, its certificate is of an unknown CA, and clients need none. Else its certificate is of the signer's
// CA, and clients need one of a CA that the configuration accepts.
func (c *Config) ServerTLS(signer *Config, address, hostname string) (*tls.Config, error) {
	config, sans := &tls.Config{MinVersion: tls.VersionTLS13}, []string{address, hostname}
	var ca *x509.CertificateAuthority
	var err error
	if signer == nil {
		ca, err = x509.NewSelfSignedCertificateAuthority(x509.Organization("talos"))
	} else {
		ca, err = x509.NewCertificateAuthorityFromCertificateAndKey(
			&x509.PEMEncodedCertificateAndKey{Crt: []byte(signer.CA), Key: signer.caKey})
		config.ClientAuth, config.ClientCAs = tls.RequireAndVerifyClientCert, stdx509.NewCertPool()
		config.ClientCAs.AppendCertsFromPEM(c.accepted)
		sans = append(sans, c.sans...)
	}
	if err != nil {
		return nil, fmt.Errorf("machine CA: %w", err)
	}
	var ips []net.IP
	var names []string
	for _, san := range sans {
		if ip := net.ParseIP(san); ip != nil {
			ips = append(ips, ip)
		} else {
			names = append(names, san)
		}
	}
	pair, err := x509.NewKeyPair(ca,
		x509.CommonName(hostname), x509.IPAddresses(ips), x509.DNSNames(names),
		x509.KeyUsage(stdx509.KeyUsageDigitalSignature),
		x509.ExtKeyUsage([]stdx509.ExtKeyUsage{stdx509.ExtKeyUsageServerAuth}))
	if err != nil {
		return nil, fmt.Errorf("server certificate: %w", err)
	}
	config.Certificates = []tls.Certificate{*pair.Certificate}
	return config, nil
}
