//go:build integration

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestOpenTofu rehearses the cluster mini with the OpenTofu that make tofu has built.
func TestOpenTofu(t *testing.T) {
	if here := os.Getenv(inLab); here != "" {
		t.Chdir(here)
		inside(t, "testdata/tofu")
		return
	}
	bin, err := filepath.Abs("../../bin")
	if err == nil {
		_, err = os.Stat(filepath.Join(bin, "tofu"))
	}
	if err != nil {
		t.Fatalf("OpenTofu is not built (make tofu): %v", err)
	}
	out := rehearse(t, []string{"CASTLE_TERRAFORM=tofu", "PATH=" + bin + ":" + os.Getenv("PATH")},
		"-C", "../..", "mini")
	if !strings.Contains(out, "Left over: nothing") {
		t.Fatalf("something is left over:\n%s", out)
	}
}
