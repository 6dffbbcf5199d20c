package datacenter

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ephemeral-castle/castle/internal/emulator/talos"
	"github.com/ephemeral-castle/castle/lab/internal/controlplane"
	"github.com/ephemeral-castle/castle/lab/internal/kubernetes"
	"github.com/ephemeral-castle/castle/lab/internal/operators"
)

// podSecurity is Talos' default: everything but kube-system is held to baseline.
const podSecurity = `
apiVersion: apiserver.config.k8s.io/v1
kind: AdmissionConfiguration
plugins:
- name: PodSecurity
  configuration:
    apiVersion: pod-security.admission.config.k8s.io/v1
    kind: PodSecurityConfiguration
    defaults:
      enforce: baseline
      enforce-version: latest
      audit: restricted
      audit-version: latest
      warn: restricted
      warn-version: latest
    exemptions:
      namespaces: [kube-system]
`

// order translates the machine configuration into the control plane to run.
func (k *kube) order(c *cluster) controlplane.Order {
	s := c.spec
	o := controlplane.Order{
		Kubernetes: kubernetes.Config{
			Dir: c.dir, Listen: c.backend,
			CA:                kubernetes.KeyPair{Certificate: s.CACert, Key: s.CAKey},
			AggregatorCA:      kubernetes.KeyPair{Certificate: s.AggregatorCACert, Key: s.AggregatorCAKey},
			ServiceAccountKey: s.ServiceAccountKey,
			Issuer:            s.Endpoint, CertSANs: apiNames(k.machines),
			ServiceCIDR: strings.Join(s.ServiceCIDRs, ","), PodCIDR: strings.Join(s.PodCIDRs, ","),
			Network:   networkOf(s),
			Release:   k.release(),
			Admission: []byte(podSecurity),
			PodReady:  scaled(5*time.Second, k.config.Speed),
			NodeGrace: max(8*time.Second, scaled(40*time.Second, k.config.Speed)),
		},
		Operators: k.log.remaining(),
		Speed:     k.config.Speed, CoreDNS: s.CoreDNS, Repository: k.config.Repository,
		WithoutProxy: !s.KubeProxy, KubePrism: s.KubePrism,
		Turn: func(t operators.Turn) { k.log.turn(t.Fault, t.Time, t.Ends) },
	}
	// Arguments about files and addresses of the machine do not apply here.
	if issuer := s.APIServerArgs["service-account-issuer"]; len(issuer) != 0 {
		o.Kubernetes.Issuer = issuer[0]
	}
	for _, name := range []string{"api-audiences", "service-account-jwks-uri"} {
		for _, value := range s.APIServerArgs[name] {
			o.Kubernetes.Flags = append(o.Kubernetes.Flags, name+"="+value)
		}
	}
	for _, name := range []string{"node-cidr-mask-size", "node-cidr-mask-size-ipv4",
		"node-cidr-mask-size-ipv6"} {
		for _, value := range s.ControllerManagerArgs[name] {
			o.Kubernetes.NodeMasks = append(o.Kubernetes.NodeMasks, name+"="+value)
		}
	}
	for _, m := range s.InlineManifests {
		o.Manifests = append(o.Manifests, m.Contents)
	}
	return o
}

// apiNames are the names of the one API server, which stands for those of all control planes.
func apiNames(machines map[string]talos.MachineSpec) []string {
	var all []string
	for _, m := range machines {
		all = append(all, m.SANs...)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// networkOf is what the nodes' network waits for. The lab fetches no manifests.
func networkOf(s talos.ClusterSpec) string {
	switch {
	case s.CNI == "flannel" || s.CNI == "":
		return ""
	case s.CNI == "none" && len(s.ManifestURLs) == 0:
		return "daemonset"
	}
	return "unseen"
}

// refusal is why no control plane of the cluster starts; "" if one does. The caller holds the mutex.
func (k *kube) refusal(s talos.ClusterSpec) (why string) {
	for _, m := range k.machines {
		if !m.ControlPlane {
			continue
		}
		if why = nodeIP(m); why != "" {
			continue
		}
		services, err := netip.ParsePrefix(strings.Join(s.ServiceCIDRs[:min(len(s.ServiceCIDRs), 1)], ""))
		address, addressErr := netip.ParseAddr(m.Address)
		if err != nil || addressErr != nil || services.Addr().Is4() == address.Is4() {
			return ""
		}
		why = fmt.Sprintf("kube-apiserver: %s has no address of the family of %s, the first network of "+
			"Services", m.Hostname, services)
	}
	return why
}

// nodeIP is why the kubelet of a machine does not start; "" if it does.
func nodeIP(m talos.MachineSpec) string {
	address, err := netip.ParseAddr(m.Address)
	if err != nil || len(m.NodeIPs) == 0 {
		return ""
	}
	selected := false
	for _, text := range m.NodeIPs {
		text, excluded := strings.CutPrefix(text, "!")
		if p, err := netip.ParsePrefix(text); err == nil && p.Contains(address) {
			if excluded {
				selected = false
				break
			}
			selected = true
		}
	}
	if selected {
		return ""
	}
	return fmt.Sprintf("kubelet: no suitable node IP found for %s in %s", m.Hostname,
		strings.Join(m.NodeIPs, ", "))
}

func number(text string, or int64) int64 {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return or
	}
	return n
}
