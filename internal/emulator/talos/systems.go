package talos

import (
	"cmp"
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
)

// system is one build of Talos.
type system struct {
	release   string
	schematic string // of the image factory; empty for an image of Talos' own registry
}

// bootEntries are the two systems on a machine's disk, as GRUB keeps them (boot entries A and B).
type bootEntries struct {
	next   system
	former *system // nil until the first upgrade
	// unproven is META's upgrade tag: an upgrade has installed next, which has not been running and ready
	// yet. If its boot fails, Talos boots former again.
	unproven bool
}

// installed puts a system in the place of the one that would not boot next. Two installations without a
// restart replace the system that runs (bootloader/grub/upgrade.go).
func (b *bootEntries) install(s system) {
	former := b.next
	b.next, b.former, b.unproven = s, &former, true
}

// flip lets the other system boot next.
func (b *bootEntries) flip() error {
	if b.former == nil {
		return fmt.Errorf("cannot rollback to %q, label does not exist", "")
	}
	next := *b.former
	former := b.next
	b.next, b.former = next, &former
	return nil
}

// revert is what Talos does when a boot fails (internal/app/machined/revert.go).
func (b *bootEntries) revert() {
	if b.unproven && b.former != nil {
		next, former := *b.former, b.next
		b.next, b.former = next, &former
	}
	b.unproven = false
}

// blank is what a machine's new disk boots, or the ISO in its drive.
func (m *machine) blank() bootEntries {
	return bootEntries{next: system{release: cmp.Or(m.spec.Version, iso), schematic: m.spec.Schematic}}
}

// minor is 13 of v1.13.0.
func (s system) minor() int {
	var minor int
	_, _ = fmt.Sscanf(s.release, "v1.%d.", &minor) //nolint:errcheck // 0 then
	return minor
}

// registries are the hosts whose images a machine finds, beside those of Config and of its mirrors.
var registries = []string{"factory.talos.dev", "ghcr.io"}

var releaseTag = regexp.MustCompile(`^v\d+\.\d+\.\d+(-[a-z]+\.\d+)?$`)

// errNotFound is a registry's answer that it has no such image.
var errNotFound = errors.New("not found")

// resolve finds the system of an installer image, or returns the error of a pull.
func (w *world) resolve(m *machine, ref string) (system, error) {
	host, rest, named := strings.Cut(ref, "/")
	at := strings.LastIndex(rest, ":")
	if !named || at < 0 || !strings.ContainsAny(host, ".:") {
		return system{}, fmt.Errorf("failed to parse image reference %q: invalid reference format", ref)
	}
	repository, tag := rest[:at], rest[at+1:]
	known := slices.Concat(registries, w.config.Registries)
	if m.installed != nil {
		for mirrored := range m.installed.config.RegistryMirrorConfigs() {
			known = append(known, mirrored)
		}
	}
	failed := fmt.Sprintf("failed to pull image %q: failed to resolve reference %q: ", ref, ref)
	switch name := strings.Split(repository, "/"); {
	case !slices.Contains(known, host):
		return system{}, fmt.Errorf("%sfailed to do request: Head \"https://%s/v2/%s/manifests/%s\": "+
			"dial tcp: lookup %s on 127.0.0.53:53: no such host", failed, host, repository, tag, host)
	case !releaseTag.MatchString(tag) || !strings.Contains(repository, "installer"):
		return system{}, fmt.Errorf("%s%s: %w", failed, ref, errNotFound)
	case strings.Contains(name[0], "installer") && len(name) == 2 && w.config.HasSchematic != nil &&
		!w.config.HasSchematic(name[1]):
		return system{}, fmt.Errorf("%s%s: %w", failed, ref, errNotFound)
	case strings.Contains(name[0], "installer") && len(name) == 2:
		return system{release: tag, schematic: path.Base(repository)}, nil
	default:
		return system{release: tag}, nil
	}
}

// preflight is the check of an installer before it installs (cmd/installer/pkg/install/preflight.go). Each
// minor release accepts the two before it, and the one after it to go back.
func preflight(host, image system) error {
	was, is := strings.TrimPrefix(host.release, "v"), strings.TrimPrefix(image.release, "v")
	switch {
	case host.minor() < image.minor()-2:
		return fmt.Errorf("host version %s is too old to upgrade to Talos %s", was, is)
	case host.minor() > image.minor()+1:
		return fmt.Errorf("host version %s is too new to downgrade to Talos %s", was, is)
	}
	return nil
}
