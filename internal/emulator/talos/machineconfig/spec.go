package machineconfig

import (
	"maps"
	"net/netip"

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
	KubeletArgs           map[string][]string // of the bootstrapped machine
	CNI                   string              // "flannel", "none" or "custom"
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

// MachineSpec is the node of a machine with this configuration. Its other addresses and its Talos are not in
// there.
func (c *Config) MachineSpec(address, hostname string) MachineSpec {
	machine, cluster := c.Provider.Machine(), c.Provider.Cluster()
	spec := MachineSpec{
		Address: address, Hostname: hostname,
		ControlPlane:      c.ControlPlane,
		ClusterName:       cluster.Name(),
		KubernetesVersion: ImageTag(machine.Kubelet().Image()),
		Labels:            map[string]string{},
		Annotations:       map[string]string{},
		Taints:            map[string]string{},
		RegisterTaints:    c.registerTaints(),
		NodeIPs:           machine.Kubelet().NodeIP().ValidSubnets(),
		Extensions:        map[string][]string{},
	}
	if cluster.ExternalCloudProvider().Enabled() {
		spec.RegisterTaints["node.cloudprovider.kubernetes.io/uninitialized"] = "true:NoSchedule"
	}
	for _, service := range c.Provider.ExtensionServiceConfigs() {
		spec.Extensions[service.Name()] = service.Environment()
	}
	maps.Copy(spec.Labels, machine.NodeLabels())
	maps.Copy(spec.Annotations, machine.NodeAnnotations())
	if spec.ControlPlane {
		spec.SANs = append(c.apiServerSANs(), spec.Address, spec.Hostname)
		spec.StaticPods = c.StaticPods()
		spec.APIServerVersion = ImageTag(spec.StaticPods[k8s.APIServerID])
		spec.Labels[constants.LabelNodeRoleControlPlane] = ""
		if !cluster.ScheduleOnControlPlanes() {
			spec.Taints[constants.LabelNodeRoleControlPlane] = "NoSchedule"
			spec.RegisterTaints[constants.LabelNodeRoleControlPlane] = "NoSchedule"
		}
	}
	maps.Copy(spec.Taints, machine.NodeTaints())
	return spec
}

// ClusterSpec is the Kubernetes API that a machine with this configuration would start.
func (c *Config) ClusterSpec() ClusterSpec {
	cluster := c.Provider.Cluster()
	spec := ClusterSpec{
		Name: cluster.Name(), Endpoint: cluster.Endpoint().String(), APIPort: cluster.LocalAPIServerPort(),
		ServiceCIDRs: cluster.Network().ServiceCIDRs(), PodCIDRs: cluster.Network().PodCIDRs(),
		APIServerArgs: cluster.APIServer().ExtraArgs(),
		CoreDNS:       cluster.CoreDNS().Enabled(), KubeProxy: cluster.Proxy().Enabled(),
		ControllerManagerArgs: cluster.ControllerManager().ExtraArgs(),
		KubeletArgs:           c.Provider.Machine().Kubelet().ExtraArgs(),
		CNI:                   cluster.Network().CNI().Name(), ManifestURLs: cluster.ExtraManifestURLs(),
	}
	if prism := c.Provider.Machine().Features().KubePrism(); prism.Enabled() {
		spec.KubePrism = prism.Port()
	}
	for _, v := range c.VirtualIPs() {
		spec.VIPs = append(spec.VIPs, v.Address.String())
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
