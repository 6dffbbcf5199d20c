package talos

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/siderolabs/crypto/x509"
	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/configpatcher"
	"github.com/siderolabs/talos/pkg/machinery/config/generate"
	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	"github.com/siderolabs/talos/pkg/machinery/config/machine"
)

// Machine holds the arguments of Terraform's data source talos_machine_configuration.
type Machine struct {
	ClusterName, Endpoint, Type     string // controlplane or worker
	TalosVersion, KubernetesVersion string
	Patches                         []string
}

// MachineConfig is a machine's configuration, rendered with placeholders for its secrets.
type MachineConfig struct{ provider config.Provider }

// noImage is the installer as long as no patch names one.
const noImage = "castle.invalid/no-installer"

// Render renders a machine's configuration as the provider does: Talos' default
// for the version, then the patches in order.
func Render(m Machine) (*MachineConfig, error) {
	kind, err := machine.ParseType(m.Type)
	if err != nil {
		return nil, err
	}
	contract, err := config.ParseContractFromVersion(m.TalosVersion)
	if err != nil {
		return nil, err
	}
	patches, err := configpatcher.LoadPatches(m.Patches)
	if err != nil {
		return nil, err
	}
	input, err := generate.NewInput(m.ClusterName, m.Endpoint, strings.TrimPrefix(m.KubernetesVersion, "v"),
		generate.WithSecretsBundle(placeholders()), generate.WithVersionContract(contract),
		generate.WithInstallImage(noImage), generate.WithInstallDisk("/dev/sda"),
		generate.WithClusterDiscovery(true))
	if err != nil {
		return nil, err
	}
	base, err := input.Config(kind)
	if err != nil {
		return nil, err
	}
	patched, err := configpatcher.Apply(configpatcher.WithConfig(base), patches)
	if err != nil {
		return nil, err
	}
	provider, err := patched.Config()
	return &MachineConfig{provider}, err
}

// placeholders are secrets of the right shape. Real ones take a third of a second
// to generate, and no machine ever gets this configuration.
func placeholders() *secrets.Bundle {
	pair := func() *x509.PEMEncodedCertificateAndKey {
		return &x509.PEMEncodedCertificateAndKey{Crt: []byte("placeholder"), Key: []byte("placeholder")}
	}
	return &secrets.Bundle{
		Clock:   secrets.NewFixedClock(time.Unix(0, 0)),
		Cluster: &secrets.Cluster{ID: "placeholder", Secret: "placeholder"},
		Secrets: &secrets.Secrets{
			BootstrapToken: "placeh.placeholderplace", SecretboxEncryptionSecret: "placeholder",
		},
		TrustdInfo: &secrets.TrustdInfo{Token: "placeh.placeholderplace"},
		Certs: &secrets.Certs{
			Etcd: pair(), K8s: pair(), K8sAggregator: pair(), OS: pair(),
			K8sServiceAccount: &x509.PEMEncodedKey{Key: []byte("placeholder")},
		},
	}
}

// ReadPatch validates a patch alone: its YAML, kinds and fields.
func ReadPatch(text string) error {
	_, err := configpatcher.LoadPatches([]string{text})
	return err
}

// disk is the mode of Talos in a VM: installed on its disk.
type disk struct{}

func (disk) String() string        { return "metal" }
func (disk) RequiresInstall() bool { return true }
func (disk) InContainer() bool     { return false }

// Problems returns the errors of Talos' own validation.
func (m *MachineConfig) Problems() []string {
	_, err := m.provider.Validate(disk{})
	return causes(err)
}

// causes flattens the errors that machinery joins.
func causes(err error) []string {
	var several interface{ WrappedErrors() []error } // hashicorp/go-multierror
	if errors.As(err, &several) {
		var all []string
		for _, e := range several.WrappedErrors() {
			all = append(all, causes(e)...)
		}
		return all
	}
	if err == nil {
		return nil
	}
	return []string{err.Error()}
}

// InstallImage is the installer that a patch names, or "" where none does.
func (m *MachineConfig) InstallImage() string {
	if image := m.provider.Machine().Install().Image(); image != noImage {
		return image
	}
	return ""
}

// KernelModules are the names of the modules that the machine loads.
func (m *MachineConfig) KernelModules() []string {
	var names []string
	for _, module := range m.provider.Machine().Kernel().Modules() {
		names = append(names, module.Name())
	}
	return names
}

// MachineCertSANs are further names of Talos' own API.
func (m *MachineConfig) MachineCertSANs() []string { return m.provider.Machine().Security().CertSANs() }

// APIServerCertSANs are further names of the Kubernetes API.
func (m *MachineConfig) APIServerCertSANs() []string { return m.provider.Cluster().CertSANs() }

// VirtualAddresses are the virtual addresses in configuration documents.
func (m *MachineConfig) VirtualAddresses() []netip.Addr {
	var all []netip.Addr
	for _, c := range m.provider.NetworkVirtualIPConfigs() {
		all = append(all, c.VIP())
	}
	return all
}

// PodNetworks are the networks of Pods.
func (m *MachineConfig) PodNetworks() []string { return m.provider.Cluster().Network().PodCIDRs() }

// ServiceNetworks are the networks of Services.
func (m *MachineConfig) ServiceNetworks() []string {
	return m.provider.Cluster().Network().ServiceCIDRs()
}

// Kinds are the sorted kinds of the documents beside v1alpha1.
func (m *MachineConfig) Kinds() []string {
	var kinds []string
	for _, d := range m.provider.Documents() {
		if d.Kind() != "v1alpha1" && d.Kind() != "" {
			kinds = append(kinds, d.Kind())
		}
	}
	slices.Sort(kinds)
	return slices.Compact(kinds)
}
