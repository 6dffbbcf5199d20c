package stages_test

import (
	"slices"
	"strings"
	"testing"
)

// A cloud is another layer platform: of the stages of blue and green, only those of the layers platform and
// networking differ.
func TestGreenIsBlueOnAnotherPlatform(t *testing.T) {
	stages := func(cluster string) (same, others []string) {
		for _, s := range load(t, cluster).Stages {
			if strings.HasPrefix(s.Source, "platform/") || strings.HasPrefix(s.Source, "networking/") {
				others = append(others, s.Source)
			} else {
				same = append(same, s.Name+" "+s.Source)
			}
		}
		slices.Sort(same)
		return same, others
	}
	blue, proxmox := stages("blue")
	green, hcloud := stages("green")
	if !slices.Equal(blue, green) || len(blue) < 7 {
		t.Errorf("blue has %q, and green %q", blue, green)
	}
	if slices.Equal(proxmox, hcloud) || !slices.Contains(hcloud, "platform/talos") {
		t.Errorf("platforms: %q and %q", proxmox, hcloud)
	}
}
