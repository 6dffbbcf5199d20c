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

// Machine is what Terraform's data source talos_machine_configuration is given for one machine.
type Machine struct {
	ClusterName, Endpoint, Type     string // controlplane or worker
	TalosVersion, KubernetesVersion string
	Patches                         []string
}

// MachineConfig is a machine's configuration, rendered with stand-ins for its secrets.
type MachineConfig struct{ provider config.Provider }

// noImage stands where no patch names the installer.
const noImage = "castle.invalid/no-installer"

// Render makes a machine's configuration as the provider does: Talos' own for
// the version, and the patches applied one after the other.
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
		generate.WithSecretsBundle(standIns()), generate.WithVersionContract(contract),
		generate.WithInstallImage(noImage), generate.WithInstallDisk("/dev/sda"), generate.WithClusterDiscovery(true))
	if err != nil {
		return nil, err
	}
	made, err := input.Config(kind)
	if err != nil {
		return nil, err
	}
	patched, err := configpatcher.Apply(configpatcher.WithConfig(made), patches)
	if err != nil {
		return nil, err
	}
	provider, err := patched.Config()
	return &MachineConfig{provider}, err
}

// standIns are secrets that only have the right shape. Making real ones takes
// a third of a second, and nothing here is ever shown to a machine.
func standIns() *secrets.Bundle {
	pair := func() *x509.PEMEncodedCertificateAndKey {
		return &x509.PEMEncodedCertificateAndKey{Crt: []byte("stand-in"), Key: []byte("stand-in")}
	}
	return &secrets.Bundle{
		Clock:      secrets.NewFixedClock(time.Unix(0, 0)),
		Cluster:    &secrets.Cluster{ID: "stand-in", Secret: "stand-in"},
		Secrets:    &secrets.Secrets{BootstrapToken: "standi.standinstandinst", SecretboxEncryptionSecret: "stand-in"},
		TrustdInfo: &secrets.TrustdInfo{Token: "standi.standinstandinst"},
		Certs: &secrets.Certs{
			Etcd: pair(), K8s: pair(), K8sAggregator: pair(), OS: pair(),
			K8sServiceAccount: &x509.PEMEncodedKey{Key: []byte("stand-in")},
		},
	}
}

// ReadPatch reports what is wrong with a patch by itself: its YAML, the kinds and the fields.
func ReadPatch(text string) error {
	_, err := configpatcher.LoadPatches([]string{text})
	return err
}

// disk is the way Talos runs in a virtual machine: installed on its disk.
type disk struct{}

func (disk) String() string        { return "metal" }
func (disk) RequiresInstall() bool { return true }
func (disk) InContainer() bool     { return false }

// Problems returns what Talos itself would refuse.
func (m *MachineConfig) Problems() []string {
	_, err := m.provider.Validate(disk{})
	return causes(err)
}

// causes flattens what machinery joins.
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
func (m *MachineConfig) APIServerCertSANs() []string {
	return m.provider.Cluster().CertSANs()
}

// VirtualAddresses are those that the machine would hold with others, by document.
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

// Kinds are the kinds of the documents beside Talos' original one, each once and sorted.
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
