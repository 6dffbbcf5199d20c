package talos

import (
	"errors"
	"fmt"
	"strings"

	"github.com/hashicorp/go-version"
)

// Traits are the parts of Talos' behaviour that depend on its release.
type Traits struct {
	// InstallRestarts: an upgrade checks etcd, drains and restarts by itself (MachineService.Upgrade).
	// Otherwise it installs and does nothing else (LifecycleService.Upgrade).
	InstallRestarts bool
	// ApplyRestarts: a configuration that needs a restart makes it, undrained.
	ApplyRestarts bool
}

// releases are the traits since a minor release. Another release that behaves differently is a row.
var releases = []struct {
	since int // the 13 of v1.13
	Traits
}{
	{0, Traits{InstallRestarts: true, ApplyRestarts: true}},
	{13, Traits{InstallRestarts: false, ApplyRestarts: true}},
	{14, Traits{InstallRestarts: false, ApplyRestarts: false}},
}

// TraitsOf returns the traits of a release such as v1.13.0.
func TraitsOf(release string) (traits Traits) {
	for _, r := range releases {
		if minorOf(release) >= r.since {
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

// UpgradePath returns an error unless Talos can go from one release to another in one step, castle's
// machinery knows the other one, and that runs this release of Kubernetes. Talos supports the way from the
// newest patch of a minor release to the next minor release, and between the patches of one.
func UpgradePath(from, to, kubernetes string) error {
	was, err := version.NewVersion(from)
	is, unread := version.NewVersion(to)
	if err = errors.Join(err, unread); err != nil {
		return fmt.Errorf("releases of Talos, %s → %s: %w", from, to, err)
	}
	refuse := func(format string, args ...any) error {
		return fmt.Errorf("Talos %s → %s: "+format, append([]any{from, to}, args...)...)
	}
	var skipped []string
	for minor := minorOf(from) + 1; minor < minorOf(to); minor++ {
		skipped = append(skipped, fmt.Sprintf("v%d.%d", is.Segments()[0], minor))
	}
	switch oldest, newest := SupportOf(to); {
	case is.LessThan(was) && minorOf(to) != minorOf(from):
		return refuse("Talos supports no way back over a minor release; set talos_version = %q again, or "+
			"castle recreate", from)
	case is.Segments()[0] != was.Segments()[0], minorOf(to) > minorOf(Newest()):
		return refuse("castle knows Talos up to %s; choose a release of it", Newest())
	case len(skipped) > 0:
		return refuse("skips a minor release; upgrade to the newest patch of %s first",
			strings.Join(skipped, ", then of "))
	case !Suits(to, kubernetes):
		return refuse("it runs Kubernetes %s to %s, and the cluster has %s; bring Kubernetes there first",
			oldest, newest, kubernetes)
	}
	return nil
}
