package talos

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/tls"
	stdx509 "crypto/x509"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/siderolabs/crypto/x509"
	"github.com/siderolabs/talos/pkg/machinery/config"
	talosconfig "github.com/siderolabs/talos/pkg/machinery/config/config"
	"github.com/siderolabs/talos/pkg/machinery/config/configloader"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// installed is a machine configuration that Talos has accepted.
type installed struct {
	config       config.Provider
	controlPlane bool
	hostname     string // empty unless the configuration names one
	ca           string // the issuing CA's certificate, which also identifies the cluster
	caKey        []byte // on control planes
	accepted     []byte // CA certificates for clients
	sans         []string
}

// cloud is the platform of a virtual machine that boots an installed image
// (nocloud): unlike bare metal it demands no install section.
type cloud struct{}

func (cloud) String() string        { return "cloud" }
func (cloud) RequiresInstall() bool { return false }
func (cloud) InContainer() bool     { return false }

// parse reads and validates a machine configuration as Talos does.
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

// apidTLS is the TLS of a machine's API. In maintenance mode (without a signer) its certificate is of an
// unknown CA, and clients need none. Later its certificate is of the signer's CA, and clients need one of a
// CA that the configuration accepts.
func apidTLS(m *machine, signer *installed) (*tls.Config, error) {
	config, sans := &tls.Config{MinVersion: tls.VersionTLS13}, []string{m.spec.Address, m.hostname()}
	var ca *x509.CertificateAuthority
	var err error
	if signer == nil {
		ca, err = x509.NewSelfSignedCertificateAuthority(x509.Organization("talos"))
	} else {
		ca, err = x509.NewCertificateAuthorityFromCertificateAndKey(
			&x509.PEMEncodedCertificateAndKey{Crt: []byte(signer.ca), Key: signer.caKey})
		config.ClientAuth, config.ClientCAs = tls.RequireAndVerifyClientCert, stdx509.NewCertPool()
		config.ClientCAs.AppendCertsFromPEM(m.installed.accepted)
		sans = append(sans, m.installed.sans...)
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
		x509.CommonName(m.hostname()), x509.IPAddresses(ips), x509.DNSNames(names),
		x509.KeyUsage(stdx509.KeyUsageDigitalSignature),
		x509.ExtKeyUsage([]stdx509.ExtKeyUsage{stdx509.ExtKeyUsageServerAuth}))
	if err != nil {
		return nil, fmt.Errorf("server certificate: %w", err)
	}
	config.Certificates = []tls.Certificate{*pair.Certificate}
	return config, nil
}

// adminKubeconfig generates a kubeconfig with a new admin certificate.
func adminKubeconfig(cluster talosconfig.ClusterConfig) ([]byte, error) {
	if cluster.IssuingCA() == nil {
		return nil, errors.New("error getting Kubernetes CA: cluster.ca is not set")
	}
	ca, err := x509.NewCertificateAuthorityFromCertificateAndKey(cluster.IssuingCA())
	if err != nil {
		return nil, fmt.Errorf("error getting Kubernetes CA: %w", err)
	}
	admin := cluster.AdminKubeconfig()
	client, err := x509.NewKeyPair(ca,
		x509.CommonName(admin.CommonName()), x509.Organization(admin.CertOrganization()),
		x509.NotBefore(time.Now().Add(-10*time.Second)),
		x509.NotAfter(time.Now().Add(admin.CertLifetime())),
		x509.KeyUsage(stdx509.KeyUsageDigitalSignature|stdx509.KeyUsageKeyEncipherment),
		x509.ExtKeyUsage([]stdx509.ExtKeyUsage{stdx509.ExtKeyUsageClientAuth}))
	if err != nil {
		return nil, fmt.Errorf("error generating Kubernetes client certificate: %w", err)
	}
	var cas []byte
	for _, accepted := range cluster.AcceptedCAs() {
		cas = append(cas, accepted.Crt...)
	}
	cas = append(cas, cluster.IssuingCA().Crt...)
	name := "admin@" + cluster.Name()
	return clientcmd.Write(clientcmdapi.Config{
		Clusters: map[string]*clientcmdapi.Cluster{
			cluster.Name(): {Server: cluster.Endpoint().String(), CertificateAuthorityData: cas},
		},
		AuthInfos: map[string]*clientcmdapi.AuthInfo{
			name: {ClientCertificateData: client.CrtPEM, ClientKeyData: client.KeyPEM},
		},
		Contexts: map[string]*clientcmdapi.Context{
			name: {Cluster: cluster.Name(), AuthInfo: name, Namespace: "default"},
		},
		CurrentContext: name,
	})
}

// pack is a file as the API sends it: a gzipped tar of one file.
func pack(name string, content []byte) ([]byte, error) {
	var out bytes.Buffer
	zip := gzip.NewWriter(&out)
	archive := tar.NewWriter(zip)
	err := archive.WriteHeader(&tar.Header{
		Typeflag: tar.TypeReg, Name: name, Size: int64(len(content)), Mode: 0o600, ModTime: time.Now(),
	})
	if err == nil {
		_, err = archive.Write(content)
	}
	err = errors.Join(err, archive.Close(), zip.Close())
	return out.Bytes(), err
}
