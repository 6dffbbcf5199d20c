package docs_test

import (
	"os"
	"regexp"
	"slices"
	"testing"

	"github.com/ephemeral-castle/castle/internal/platform/proxmox"
)

var pveum = regexp.MustCompile(`(?m)^    (pveum .*)$`)

// TestProxmoxMdHasTheCommandsOfTheDoctor: cmd/castle runs them against the emulator.
func TestProxmoxMdHasTheCommandsOfTheDoctor(t *testing.T) {
	text, err := os.ReadFile("proxmox.md")
	if err != nil {
		t.Fatal(err)
	}
	var commands []string
	for _, found := range pveum.FindAllSubmatch(text, -1) {
		commands = append(commands, string(found[1]))
	}
	want := proxmox.Footprint{Pool: "green", Nodes: []string{"proxmox"}, Images: []string{"castle-images"},
		Disks: []string{"local-lvm"}, Bridges: []string{"vmbr0"}}.Commands("castle@pve!green")
	if n := min(len(want), len(commands)); !slices.Equal(commands[:n], want) {
		t.Errorf("the page has %q\nthe doctor  %q", commands, want)
	}
}
