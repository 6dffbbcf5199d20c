package talos

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	stdx509 "crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"time"

	"github.com/siderolabs/crypto/x509"
	"github.com/siderolabs/talos/pkg/machinery/config/config"
)

const kubeconfigText = `apiVersion: v1
kind: Config
clusters:
- name: %[1]q
  cluster:
    server: %[2]q
    certificate-authority-data: %[3]s
users:
- name: %[4]q
  user:
    client-certificate-data: %[5]s
    client-key-data: %[6]s
contexts:
- name: %[4]q
  context:
    cluster: %[1]q
    namespace: default
    user: %[4]q
current-context: %[4]q
`

// adminKubeconfig makes a kubeconfig with a fresh admin certificate and packs it
// as the API sends it: a gzipped tar of one file.
func adminKubeconfig(cluster config.ClusterConfig) ([]byte, error) {
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
		x509.NotBefore(time.Now().Add(-10*time.Second)), x509.NotAfter(time.Now().Add(admin.CertLifetime())),
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
	encode := base64.StdEncoding.EncodeToString
	return pack("kubeconfig", fmt.Appendf(nil, kubeconfigText, cluster.Name(), cluster.Endpoint().String(), encode(cas),
		"admin@"+cluster.Name(), encode(client.CrtPEM), encode(client.KeyPEM)))
}

func pack(name string, content []byte) ([]byte, error) {
	var out bytes.Buffer
	zip := gzip.NewWriter(&out)
	archive := tar.NewWriter(zip)
	header := &tar.Header{Typeflag: tar.TypeReg, Name: name, Size: int64(len(content)), Mode: 0o600, ModTime: time.Now()}
	if err := archive.WriteHeader(header); err != nil {
		return nil, err
	}
	if _, err := archive.Write(content); err != nil {
		return nil, err
	}
	if err := errors.Join(archive.Close(), zip.Close()); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}
