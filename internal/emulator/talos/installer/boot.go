// Package installer has the builds of Talos: the installer images that registries have, what an installer
// does, and the two systems on a disk from which a machine boots.
package installer

import (
	"fmt"
)

// ISO is the Talos of a machine that does not boot from an image on its disk.
const ISO = "v1.13.0"

// System is one build of Talos.
type System struct {
	Release   string
	Schematic string // of the image factory; empty for an image of Talos' own registry
}

// BootEntries are the two systems on a machine's disk, as GRUB keeps them (boot entries A and B).
type BootEntries struct {
	Next   System
	former *System // nil until the first upgrade
	// Unproven is META's upgrade tag: an upgrade has installed Next, which has not been running and ready
	// yet. If its boot fails, Talos boots former again.
	Unproven bool
}

// Install puts a system in the place of the one that would not boot next. Two installations without a
// restart replace the system that runs (bootloader/grub/upgrade.go).
func (b *BootEntries) Install(s System) {
	former := b.Next
	b.Next, b.former, b.Unproven = s, &former, true
}

// Flip lets the other system boot next.
func (b *BootEntries) Flip() error {
	if b.former == nil {
		return fmt.Errorf("cannot rollback to %q, label does not exist", "")
	}
	next := *b.former
	former := b.Next
	b.Next, b.former = next, &former
	return nil
}

// Revert is what Talos does when a boot fails (internal/app/machined/revert.go).
func (b *BootEntries) Revert() {
	if b.Unproven && b.former != nil {
		next, former := *b.former, b.Next
		b.Next, b.former = next, &former
	}
	b.Unproven = false
}

// Minor is 13 of v1.13.0.
func (s System) Minor() int {
	var minor int
	_, _ = fmt.Sscanf(s.Release, "v1.%d.", &minor) //nolint:errcheck // 0 then
	return minor
}
