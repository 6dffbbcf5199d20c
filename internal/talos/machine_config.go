package talos

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/siderolabs/crypto/x509"
	"github.com/siderolabs/gen/xslices"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/compatibility"
	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/configpatcher"
	"github.com/siderolabs/talos/pkg/machinery/config/generate"
	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	"github.com/siderolabs/talos/pkg/machinery/config/machine"
	"github.com/siderolabs/talos/pkg/machinery/gendata"
)

// Machine holds the arguments of Terraform's data source talos_machine_configuration.
type Machine struct {
	ClusterName, Endpoint, Type     string // controlplane or worker
	TalosVersion, KubernetesVersion string
	Patches                         []string
}

// MachineConfig is a machine's configuration, rendered with placeholders for its secrets.
type MachineConfig struct{ config.Provider }

// noImage is the installer as long as no patch names one.
const noImage = "castle.invalid/no-installer"

// Render renders a configuration as the provider does: Talos' default for the version, then the patches.
func Render(m Machine) (*MachineConfig, error) {
	kind, typeErr := machine.ParseType(m.Type)
	contract, versionErr := config.ParseContractFromVersion(m.TalosVersion)
	patches, patchErr := configpatcher.LoadPatches(m.Patches)
	if err := errors.Join(typeErr, versionErr, patchErr); err != nil {
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

// placeholders are secrets of the right shape: real ones take a third of a second to generate.
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
	_, err := m.Validate(disk{})
	return causes(err)
}

// causes flattens the errors that machinery joins.
func causes(err error) []string {
	var several interface{ WrappedErrors() []error } // hashicorp/go-multierror
	if err == nil {
		return nil
	} else if !errors.As(err, &several) {
		return []string{err.Error()}
	}
	return xslices.FlatMap(several.WrappedErrors(), causes)
}

// InstallImage is the installer that a patch names, or "" where none does.
func (m *MachineConfig) InstallImage() string {
	if image := m.Machine().Install().Image(); image != noImage {
		return image
	}
	return ""
}

// SupportOf returns the oldest and the newest release of Kubernetes, such as 1.31 and 1.36, that a release of
// Talos runs; empty if machinery does not know it.
func SupportOf(release string) (oldest, newest string) {
	for minor := range 100 {
		if version := fmt.Sprintf("1.%d", minor); Suits(release, version+".0") {
			oldest, newest = cmp.Or(oldest, version), version
		}
	}
	return oldest, newest
}

// Suits reports whether a release of Talos runs a release of Kubernetes.
func Suits(release, kubernetes string) bool {
	target, err := compatibility.ParseTalosVersion(&machineapi.VersionInfo{Tag: release})
	if err != nil {
		return false
	}
	version, err := compatibility.ParseKubernetesVersion(kubernetes)
	return err == nil && version.SupportedWith(target) == nil
}

// Newest is the newest minor release of Talos that castle knows: "v1.13".
func Newest() string { return Minor(gendata.VersionTag) }

// KindSince returns the minor release of Talos that introduced a kind of document; "" for unlisted kinds.
func KindSince(kind string) string {
	switch kind {
	case "UserVolumeConfig", "EthernetConfig":
		return "v1.10"
	case "RawVolumeConfig":
		return "v1.11"
	case "HostnameConfig", "Layer2VIPConfig", "LinkAliasConfig", "LinkConfig", "ResolverConfig", "BondConfig",
		"VLANConfig", "RegistryAuthConfig", "RegistryMirrorConfig", "RegistryTLSConfig", "StaticHostConfig",
		"TimeSyncConfig":
		return "v1.12"
	}
	return ""
}

// Minor is the minor release of a release: v1.13 of v1.13.0.
func Minor(release string) string {
	parts := strings.SplitN(release, ".", 3)
	return strings.Join(parts[:min(len(parts), 2)], ".")
}
