package talos

import (
	"errors"
	"fmt"
	"strings"

	"github.com/hashicorp/go-version"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/compatibility"
)

// Traits are the parts of Talos' behaviour that depend on its release.
type Traits struct {
	// InstallRestarts: an upgrade restarts the machine by itself (MachineService.Upgrade), and checks etcd
	// and drains before. Otherwise it only installs (LifecycleService.Upgrade), and checks nothing.
	InstallRestarts bool
	// ApplyRestarts: a change of the configuration that needs a restart makes it, undrained.
	ApplyRestarts bool
}

// releases are the traits since a minor release. The last one is the newest that castle upgrades to: a newer
// one is a row, once castle's machinery knows its API and its configuration.
var releases = []struct {
	since string
	Traits
}{
	{"v1.2", Traits{InstallRestarts: true, ApplyRestarts: true}},
	{"v1.13", Traits{InstallRestarts: false, ApplyRestarts: true}},
}

// TraitsOf returns the traits of a release such as v1.13.0, of an unknown one those of the nearest.
func TraitsOf(release string) Traits {
	traits := releases[0].Traits
	for _, r := range releases {
		if since, is := minorOf(r.since), minorOf(release); is >= since {
			traits = r.Traits
		}
	}
	return traits
}

// minorOf is 13 of v1.13.0; 0 of a text that is no release.
func minorOf(release string) int {
	v, err := version.NewVersion(release)
	if err != nil {
		return 0
	}
	return v.Segments()[1]
}

// UpgradePath returns an error unless Talos can go from one release to another in one step, and the other one
// runs this release of Kubernetes. Talos supports the way from the newest patch of a minor release to the
// next minor release.
func UpgradePath(from, to, kubernetes string) error {
	was, err := version.NewVersion(from)
	is, unread := version.NewVersion(to)
	if err = errors.Join(err, unread); err != nil {
		return fmt.Errorf("Talos %s → %s: %w", from, to, err)
	}
	last := releases[len(releases)-1].since
	refuse := func(format string, args ...any) error {
		return fmt.Errorf("Talos %s → %s: "+format, append([]any{from, to}, args...)...)
	}
	switch {
	case is.LessThan(was):
		return refuse("Talos supports no way back; set talos_version = %q again, or castle recreate", from)
	case is.Segments()[0] != was.Segments()[0], minorOf(to) > minorOf(last):
		return refuse("castle knows Talos up to %s; choose a release of it", last)
	case minorOf(to) > minorOf(from)+1:
		var path []string
		for minor := minorOf(from) + 1; minor < minorOf(to); minor++ {
			path = append(path, fmt.Sprintf("v%d.%d", is.Segments()[0], minor))
		}
		return refuse("skips a minor release; upgrade to the newest patch of %s first",
			strings.Join(path, ", then of "))
	}
	host, err := compatibility.ParseTalosVersion(&machineapi.VersionInfo{Tag: from})
	target, unread := compatibility.ParseTalosVersion(&machineapi.VersionInfo{Tag: to})
	if err = errors.Join(err, unread); err == nil {
		err = target.UpgradeableFrom(host)
	}
	if err != nil {
		return refuse("%w", err)
	}
	if !Suits(to, kubernetes) {
		oldest, newest := SupportOf(to)
		return refuse("it runs Kubernetes %s to %s, and the cluster has %s; bring Kubernetes there first",
			oldest, newest, kubernetes)
	}
	return nil
}
