//go:build integration

package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// TestProxmox runs castle with real Terraform and the real bpg/proxmox provider
// against an emulated Proxmox on loopback.
func TestProxmox(t *testing.T) {
	provider, err := filepath.Abs("../../bin/terraform-provider-proxmox_v0.111.1")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(provider); err != nil {
		t.Fatalf("the provider is not built (make build): %v", err)
	}
	run(t, "testdata/proxmox", func(env *testscript.Env) error {
		d := newDatacenter(env.Defer)
		env.Values[datacenterKey{}] = &d
		environ, err := d.environ(env.WorkDir)
		for name, value := range environ {
			env.Setenv(name, value)
		}
		return errors.Join(err, mirror(env, provider))
	}, map[string]func(*testscript.TestScript, bool, []string){"proxmox": proxmox})
}

// mirror makes a provider mirror that has bpg/proxmox.
func mirror(env *testscript.Env, provider string) error {
	mirror := filepath.Join(env.WorkDir, "mirror")
	home := filepath.Join(mirror, "registry.terraform.io/bpg/proxmox/0.111.1/linux_amd64")
	rc := filepath.Join(env.WorkDir, "terraformrc")
	env.Setenv("TF_CLI_CONFIG_FILE", rc)
	if err := os.MkdirAll(home, 0o700); err != nil {
		return err
	}
	if err := os.Symlink(provider, filepath.Join(home, filepath.Base(provider))); err != nil {
		return err
	}
	return os.WriteFile(rc,
		fmt.Appendf(nil, "provider_installation {\n  filesystem_mirror { path = %q }\n}\n", mirror), 0o600)
}
