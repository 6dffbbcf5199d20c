package datacenter

import (
	"slices"
	"strconv"
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
			ServiceCIDR: first(s.ServiceCIDRs), PodCIDR: first(s.PodCIDRs),
			Release:   c.release,
			Admission: []byte(podSecurity),
			PodReady:  scaled(5*time.Second, k.config.Speed),
			NodeGrace: max(8*time.Second, scaled(40*time.Second, k.config.Speed)),
		},
		Operators: k.log.remaining(),
		Speed:     k.config.Speed, CoreDNS: s.CoreDNS, Repository: k.config.Repository,
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

func first(all []string) string {
	if len(all) == 0 {
		return ""
	}
	return all[0]
}

func number(text string, or int64) int64 {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return or
	}
	return n
}
