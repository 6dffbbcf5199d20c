//go:build integration

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestLabCharts rehearses the cluster mini with the real chart of MetalLB. It is in the module from which
// make real builds MetalLB's controller.
func TestLabCharts(t *testing.T) {
	if os.Getenv(inLab) != "" {
		scripts(t, "mini", "testdata/lab-charts")
		return
	}
	list := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "go.universe.tf/metallb")
	list.Dir = "../../lab/metallb"
	module, err := list.Output()
	if err != nil || len(module) <= 1 {
		t.Skip("the module go.universe.tf/metallb is not at hand: make real downloads it")
	}
	folder := t.TempDir()
	out, err := exec.Command("tar", "-czf", filepath.Join(folder, "metallb-0.15.2.tgz"), "-C",
		filepath.Join(strings.TrimSpace(string(module)), "charts"), "metallb").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	scripts(t, "mini", "testdata/lab-charts", "--charts", folder)
}
