package talos

// ClusterSpec is what the machine configuration of the bootstrapped machine says
// about the Kubernetes API that would now start. Keys and certificates are PEM.
type ClusterSpec struct {
	Name     string // cluster.clusterName
	Endpoint string // cluster.controlPlane.endpoint, "https://192.168.1.210:6443"
	VIPs     []string
	APIPort  int // where each control plane's own API server listens

	CACert, CAKey                     []byte // the Kubernetes CA
	AggregatorCACert, AggregatorCAKey []byte
	ServiceAccountKey                 []byte

	// SANs are all names and addresses of the API server's certificate: the
	// configured ones, the endpoint, the standard ones and the first service
	// address. The control planes' own addresses are not among them.
	SANs []string

	ServiceCIDRs, PodCIDRs []string
	DNSDomain              string
	KubernetesVersion      string // "v1.36.3"
	// APIServerArgs are cluster.apiServer.extraArgs, such as service-account-issuer.
	APIServerArgs map[string][]string
	// SecretboxKey is cluster.secretboxEncryptionSecret, base64, or empty.
	SecretboxKey    string
	CoreDNS         bool
	InlineManifests []Manifest
	// Bootstrapper is the machine that was told to bootstrap.
	Bootstrapper MachineSpec
}

// Manifest is one of cluster.inlineManifests.
type Manifest struct{ Name, Contents string }

// MachineSpec is what a configured machine's kubelet would register.
type MachineSpec struct {
	Address           string
	Hostname          string
	ControlPlane      bool
	ClusterName       string
	KubernetesVersion string // "v1.36.3", from the kubelet's image
	TalosVersion      string
	// Labels, Annotations and Taints of the Node, those that Talos adds to
	// control planes included. A taint reads key: "value:effect" or "effect".
	Labels, Annotations, Taints map[string]string
}
