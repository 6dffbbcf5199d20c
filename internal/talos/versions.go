package talos

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/compatibility"
)

// Support is the range of Kubernetes releases that a release of Talos runs.
type Support struct{ From, To string } // "1.31", "1.36"

// newest is above every minor release that machinery may know.
const newest = 100

// SupportOf returns the support of a release of Talos, such as v1.13.0; false if
// machinery does not know it.
func SupportOf(release string) (s Support, known bool) {
	for minor := range newest {
		if version := fmt.Sprintf("1.%d", minor); Suits(release, version+".0") {
			s.From, s.To = cmp.Or(s.From, version), version
		}
	}
	return s, s.From != ""
}

// Suits reports whether a release of Talos runs a release of Kubernetes.
func Suits(release, kubernetes string) bool {
	target, err := compatibility.ParseTalosVersion(&machine.VersionInfo{Tag: release})
	if err != nil {
		return false
	}
	version, err := compatibility.ParseKubernetesVersion(kubernetes)
	return err == nil && version.SupportedWith(target) == nil
}

// Newest is the newest minor release of Talos that castle knows: "v1.13".
func Newest() string {
	last := ""
	for minor := range newest {
		release := fmt.Sprintf("v1.%d", minor)
		if _, ok := SupportOf(release + ".0"); ok {
			last = release
		}
	}
	return last
}

// KindSince returns the minor release of Talos that introduced a kind of document;
// "" for kinds that stages and patches are unlikely to use.
func KindSince(kind string) string {
	switch kind {
	case "UserVolumeConfig", "EthernetConfig":
		return "v1.10"
	case "RawVolumeConfig":
		return "v1.11"
	case "HostnameConfig", "Layer2VIPConfig", "LinkAliasConfig", "LinkConfig", "ResolverConfig", "BondConfig",
		"VLANConfig", "RegistryMirrorConfig":
		return "v1.12"
	}
	return ""
}

// Minor is the minor release of a release: v1.13 of v1.13.0.
func Minor(release string) string {
	parts := strings.SplitN(release, ".", 3)
	return strings.Join(parts[:min(len(parts), 2)], ".")
}
