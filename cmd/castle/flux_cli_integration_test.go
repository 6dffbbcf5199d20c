//go:build integration

package main

import (
	"os"
	"path/filepath"
	"testing"
)

// TestLabFluxCLI rehearses the cluster handover with Flux's real controllers, and runs commands of the real
// flux and kubectl there.
func TestLabFluxCLI(t *testing.T) {
	if here := os.Getenv(inLab); here != "" {
		t.Setenv("PATH", os.Getenv("PATH")+":"+filepath.Join(here, "../../bin"))
	} else if _, err := os.Stat("../../bin/flux"); err != nil {
		t.Skip("bin/flux is not built: make flux builds it, which takes minutes")
	} else if _, err := os.Stat("../../bin/controllers/helm-controller"); err != nil {
		t.Skip("the real controllers are not built: make real builds them, which takes minutes")
	}
	scripts(t, "handover", "testdata/flux-cli", "--controllers", "real")
}
