package datacenter

import (
	"fmt"
	"net/netip"
	"path/filepath"
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

			SignedKubelets: slices.Equal(s.KubeletArgs["rotate-server-certificates"], []string{"true"}),
		},
		Operators: k.log.remaining(),
		Speed:     k.config.Speed, CoreDNS: s.CoreDNS,
		Controllers: k.config.Controllers, Logs: filepath.Join(k.config.Dir, ControllerLogs),
		AgeKey:       k.config.Keys.Age,
		WithoutProxy: !s.KubeProxy, KubePrism: s.KubePrism,
		Turn: func(t operators.Turn) { k.log.turn(t.Fault, t.Time, t.Ends) },
	}
	// Arguments about files and addresses of the machine do not apply here.
	if issuer := s.APIServerArgs["service-account-issuer"]; len(issuer) != 0 {
		o.Kubernetes.Issuer = issuer[0]
	}
	for _, name := range []string{"api-audiences", "service-account-jwks-uri", "feature-gates",
		"runtime-config"} {
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
		var addresses []string
		if addresses, why = nodeIPs(m, s.ServiceCIDRs); why != "" {
			continue
		}
		services, err := netip.ParsePrefix(strings.Join(s.ServiceCIDRs[:min(len(s.ServiceCIDRs), 1)], ""))
		if err != nil || slices.ContainsFunc(addresses, func(address string) bool {
			return netip.MustParseAddr(address).Is4() == services.Addr().Is4()
		}) {
			return ""
		}
		why = fmt.Sprintf("kube-apiserver: %s has no address of the family of %s, the first network of "+
			"Services", m.Hostname, services)
	}
	return why
}

// nodeIPs are the addresses of a machine's node: one for each family, in the order of the Services' networks.
// Without any, why tells why its kubelet does not start.
func nodeIPs(m talos.MachineSpec, services []string) (addresses []string, why string) {
	own, err := netip.ParseAddr(m.Address)
	if err != nil {
		return []string{m.Address}, ""
	}
	all := []netip.Addr{own}
	for _, p := range m.Further {
		all = append(all, p.Addr())
	}
	all = slices.DeleteFunc(all, func(a netip.Addr) bool { return !selects(m.NodeIPs, a) })
	if len(all) == 0 {
		return nil, fmt.Sprintf("kubelet: no suitable node IP found for %s in %s", m.Hostname,
			strings.Join(m.NodeIPs, ", "))
	}
	for _, text := range services {
		network, err := netip.ParsePrefix(text)
		i := slices.IndexFunc(all, func(a netip.Addr) bool { return a.Is4() == network.Addr().Is4() })
		if err == nil && i >= 0 {
			addresses = append(addresses, all[i].String())
		}
	}
	if len(addresses) == 0 {
		addresses = []string{all[0].String()}
	}
	return addresses, ""
}

// selects reports whether Talos' list of subnets has an address; ! excludes a subnet.
func selects(subnets []string, a netip.Addr) bool {
	selected := len(subnets) == 0
	for _, text := range subnets {
		text, excluded := strings.CutPrefix(text, "!")
		if p, err := netip.ParsePrefix(text); err == nil && p.Contains(a) {
			if excluded {
				return false
			}
			selected = true
		}
	}
	return selected
}

func number(text string, or int64) int64 {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return or
	}
	return n
}
