//go:build integration

package main

import (
	"os"
	"path/filepath"
	"testing"
)

// TestTalosctl rehearses the cluster blue and runs commands of the real talosctl there, at a speed at which a
// restart takes more than the second that talosctl waits before it looks again.
func TestTalosctl(t *testing.T) {
	if here := os.Getenv(inLab); here != "" {
		t.Setenv("PATH", os.Getenv("PATH")+":"+filepath.Join(here, "../../bin"))
	} else if _, err := os.Stat("../../bin/talosctl"); err != nil {
		t.Skip("bin/talosctl is not built: make talosctl builds it, which takes minutes")
	}
	scripts(t, "blue", "testdata/talosctl", "--speed", "10")
}
