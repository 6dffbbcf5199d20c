//go:build integration

package main

import (
	"os/exec"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// TestTerraform runs what only real Terraform can show, on roots of
// terraform_data, which is built in and needs no network.
func TestTerraform(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("terraform"); err != nil {
		t.Fatalf("these tests need terraform on PATH: %v", err)
	}
	run(t, "testdata/terraform", func(env *testscript.Env) error {
		env.Values[spyKey{}], env.Values[begunKey{}] = &spy{}, map[string]*begun{}
		env.Setenv("TF_CLI_CONFIG_FILE", "")
		return nil
	}, map[string]func(*testscript.TestScript, bool, []string){"spy": spying}, interruptible())
}
