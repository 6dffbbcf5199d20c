package talos

import (
	"fmt"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/compatibility"
)

// Support says which releases of Kubernetes a release of Talos runs.
type Support struct{ From, To string } // "1.31", "1.36"

// newest is past every minor release of Kubernetes that machinery may know.
const newest = 100

// SupportOf returns what machinery knows of a release of Talos, such as
// v1.13.0, and false where it does not know it.
func SupportOf(release string) (Support, bool) {
	target, err := compatibility.ParseTalosVersion(&machine.VersionInfo{Tag: release})
	if err != nil {
		return Support{}, false
	}
	var s Support
	for minor := range newest {
		version, err := compatibility.ParseKubernetesVersion(fmt.Sprintf("1.%d.0", minor))
		if err != nil || version.SupportedWith(target) != nil {
			continue
		}
		s.To = fmt.Sprintf("1.%d", minor)
		if s.From == "" {
			s.From = s.To
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

// Newest is the newest minor release of Talos that this castle knows: "v1.13".
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

// KindSince returns the minor release of Talos that first knew a kind of
// document, for those that castle's stages and their patches are likely to
// hold, and "" for others.
func KindSince(kind string) string {
	switch kind {
	case "UserVolumeConfig", "EthernetConfig":
		return "v1.10"
	case "RawVolumeConfig":
		return "v1.11"
	case "HostnameConfig", "Layer2VIPConfig", "LinkAliasConfig", "LinkConfig", "ResolverConfig", "BondConfig", "VLANConfig", "RegistryMirrorConfig":
		return "v1.12"
	}
	return ""
}

// Minor is the minor release of a release: v1.13 of v1.13.0.
func Minor(release string) string {
	parts := strings.SplitN(release, ".", 3)
	if len(parts) < 2 {
		return release
	}
	return parts[0] + "." + parts[1]
}
