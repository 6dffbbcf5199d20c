package machineconfig

import (
	stdx509 "crypto/x509"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/siderolabs/crypto/x509"
	"github.com/siderolabs/talos/pkg/machinery/resources/k8s"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Components are the static Pods that each control plane runs.
var Components = []string{k8s.APIServerID, k8s.ControllerManagerID, k8s.SchedulerID}

// StaticPods are the images of a control plane's static Pods.
func (c *Config) StaticPods() map[string]string {
	cluster := c.Provider.Cluster()
	return map[string]string{k8s.APIServerID: cluster.APIServer().Image(),
		k8s.ControllerManagerID: cluster.ControllerManager().Image(),
		k8s.SchedulerID:         cluster.Scheduler().Image()}
}

// AdminKubeconfig generates a kubeconfig with a new admin certificate.
func (c *Config) AdminKubeconfig() ([]byte, error) {
	cluster := c.Provider.Cluster()
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

// registerTaints are the taints in a kubelet's own configuration.
func (c *Config) registerTaints() map[string]string {
	kubelet, all := c.Provider.Machine().Kubelet().ExtraConfig(), map[string]string{}
	list, _ := kubelet["registerWithTaints"].([]any) //nolint:errcheck // then there are none
	for _, one := range list {
		taint, _ := one.(map[string]any)    //nolint:errcheck // then it has no key
		key, _ := taint["key"].(string)     //nolint:errcheck // likewise
		value, _ := taint["value"].(string) //nolint:errcheck // it is optional
		if effect, is := taint["effect"].(string); is && key != "" {
			all[key] = value + ":" + effect
		}
	}
	return all
}

// apiServerSANs are the names and addresses of every API server of a cluster.
func (c *Config) apiServerSANs() []string {
	cluster := c.Provider.Cluster()
	sans := append([]string{cluster.Endpoint().Hostname()}, cluster.CertSANs()...)
	sans = append(sans, "kubernetes", "kubernetes.default", "kubernetes.default.svc",
		"kubernetes.default.svc."+cluster.Network().DNSDomain(), "localhost", "127.0.0.1")
	if ips, err := cluster.Network().APIServerIPs(); err == nil {
		for _, ip := range ips {
			sans = append(sans, ip.String())
		}
	}
	return sans
}

// ImageTag returns the version in "registry.k8s.io/kube-apiserver:v1.36.3@sha256:…".
func ImageTag(image string) string {
	image, _, _ = strings.Cut(image, "@")
	return image[strings.LastIndex(image, ":")+1:]
}
