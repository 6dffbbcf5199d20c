package talos

import (
	"maps"
	"net/netip"
	"strings"

	talosconfig "github.com/siderolabs/talos/pkg/machinery/config/config"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"github.com/siderolabs/talos/pkg/machinery/resources/k8s"
)

// ClusterSpec describes the Kubernetes API that would now start, as the bootstrapped
// machine's configuration has it. Keys and certificates are PEM.
type ClusterSpec struct {
	Name     string // cluster.clusterName
	Endpoint string // cluster.controlPlane.endpoint, "https://192.168.1.210:6443"
	VIPs     []string
	APIPort  int // where each control plane's own API server listens

	CACert, CAKey                     []byte // the Kubernetes CA
	AggregatorCACert, AggregatorCAKey []byte
	ServiceAccountKey                 []byte

	ServiceCIDRs, PodCIDRs []string
	// APIServerArgs are cluster.apiServer.extraArgs, such as service-account-issuer.
	APIServerArgs         map[string][]string
	ControllerManagerArgs map[string][]string
	CNI                   string // "flannel", "none" or "custom"
	CoreDNS, KubeProxy    bool
	KubePrism             int // its port on each machine; 0: it is off
	InlineManifests       []Manifest
	ManifestURLs          []string
	Recovered             bool // its etcd has the data of a snapshot
}

// Manifest is one of cluster.inlineManifests.
type Manifest struct{ Name, Contents string }

// MachineSpec is the Node that a configured machine's kubelet would register.
type MachineSpec struct {
	Address           string
	Further           []netip.Prefix // its other addresses
	Hostname          string
	ControlPlane      bool
	ClusterName       string
	KubernetesVersion string // "v1.36.3", from the kubelet's image
	APIServerVersion  string // likewise; empty on workers
	TalosVersion      string // from the image that it runs, not from its configuration
	// StaticPods are the images of a control plane's static Pods, by component.
	StaticPods map[string]string
	// SANs are the names and addresses of a control plane's API server: its own, the configured ones, the
	// endpoint, the standard ones and the first service address.
	SANs []string
	// Labels, Annotations and Taints of the Node, those that Talos adds to
	// control planes included. A taint reads key: "value:effect" or "effect".
	Labels, Annotations, Taints map[string]string
	// RegisterTaints are those that the kubelet gives the node when it registers it.
	RegisterTaints map[string]string
	// Extensions are the environments of the machine's extension services that are configured.
	Extensions map[string][]string
	// NodeIPs are the subnets of which the kubelet takes its address; ! excludes one. Empty: any.
	NodeIPs []string
}

func (w *world) machineSpec(m *machine) MachineSpec {
	machine := m.installed.config.Machine()
	spec := MachineSpec{
		Address: m.spec.Address, Further: m.further(), Hostname: m.hostname(),
		ControlPlane:      m.controlPlane(),
		ClusterName:       m.installed.config.Cluster().Name(),
		KubernetesVersion: imageTag(machine.Kubelet().Image()),
		TalosVersion:      m.runs.release,
		Labels:            map[string]string{},
		Annotations:       map[string]string{},
		Taints:            map[string]string{},
		RegisterTaints:    registerTaints(machine.Kubelet().ExtraConfig()),
		NodeIPs:           machine.Kubelet().NodeIP().ValidSubnets(),
		Extensions:        map[string][]string{},
	}
	if m.installed.config.Cluster().ExternalCloudProvider().Enabled() {
		spec.RegisterTaints["node.cloudprovider.kubernetes.io/uninitialized"] = "true:NoSchedule"
	}
	for _, service := range m.installed.config.ExtensionServiceConfigs() {
		spec.Extensions[service.Name()] = service.Environment()
	}
	maps.Copy(spec.Labels, machine.NodeLabels())
	maps.Copy(spec.Annotations, machine.NodeAnnotations())
	if spec.ControlPlane {
		spec.SANs = append(apiServerSANs(m.installed.config.Cluster()), spec.Address, spec.Hostname)
		spec.StaticPods = m.staticPods()
		spec.APIServerVersion = imageTag(spec.StaticPods[k8s.APIServerID])
		spec.Labels[constants.LabelNodeRoleControlPlane] = ""
		if !m.installed.config.Cluster().ScheduleOnControlPlanes() {
			spec.Taints[constants.LabelNodeRoleControlPlane] = "NoSchedule"
			spec.RegisterTaints[constants.LabelNodeRoleControlPlane] = "NoSchedule"
		}
	}
	maps.Copy(spec.Taints, machine.NodeTaints())
	return spec
}

// registerTaints are the taints in a kubelet's own configuration.
func registerTaints(kubelet map[string]any) map[string]string {
	all := map[string]string{}
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

func (w *world) clusterSpec(m *machine) ClusterSpec {
	cluster := m.installed.config.Cluster()
	spec := ClusterSpec{
		Name: cluster.Name(), Endpoint: cluster.Endpoint().String(), APIPort: cluster.LocalAPIServerPort(),
		ServiceCIDRs: cluster.Network().ServiceCIDRs(), PodCIDRs: cluster.Network().PodCIDRs(),
		APIServerArgs: cluster.APIServer().ExtraArgs(),
		CoreDNS:       cluster.CoreDNS().Enabled(), KubeProxy: cluster.Proxy().Enabled(),
		ControllerManagerArgs: cluster.ControllerManager().ExtraArgs(),
		CNI:                   cluster.Network().CNI().Name(), ManifestURLs: cluster.ExtraManifestURLs(),
		Recovered: m.etcd.cluster.recovered,
	}
	if prism := m.installed.config.Machine().Features().KubePrism(); prism.Enabled() {
		spec.KubePrism = prism.Port()
	}
	for _, v := range virtualIPs(m.installed.config) {
		spec.VIPs = append(spec.VIPs, v.address.String())
	}
	if ca := cluster.IssuingCA(); ca != nil {
		spec.CACert, spec.CAKey = ca.Crt, ca.Key
	}
	if ca := cluster.AggregatorCA(); ca != nil {
		spec.AggregatorCACert, spec.AggregatorCAKey = ca.Crt, ca.Key
	}
	if account := cluster.ServiceAccount(); account != nil {
		spec.ServiceAccountKey = account.Key
	}
	for _, x := range cluster.InlineManifests() {
		spec.InlineManifests = append(spec.InlineManifests, Manifest{Name: x.Name(), Contents: x.Contents()})
	}
	return spec
}

func apiServerSANs(cluster talosconfig.ClusterConfig) []string {
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

// imageTag returns the version in "registry.k8s.io/kube-apiserver:v1.36.3@sha256:…".
func imageTag(image string) string {
	image, _, _ = strings.Cut(image, "@")
	return image[strings.LastIndex(image, ":")+1:]
}
