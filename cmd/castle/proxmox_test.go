//go:build integration

package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// TestProxmox runs castle with real Terraform and the real bpg/proxmox provider
// against an emulated Proxmox on loopback.
func TestProxmox(t *testing.T) { withProxmox(t, "testdata/proxmox") }

// TestProxmoxHands does the same where people change machines by hand.
func TestProxmoxHands(t *testing.T) { withProxmox(t, "testdata/proxmox-hands") }

func withProxmox(t *testing.T, folder string) {
	t.Helper()
	t.Parallel()
	run(t, folder, func(env *testscript.Env) error {
		d := newDatacenter(env.Defer)
		env.Values[datacenterKey{}] = &d
		environ, err := d.environ(env.WorkDir)
		for name, value := range environ {
			env.Setenv(name, value)
		}
		return errors.Join(err, provide(env, map[string]string{
			"bpg/proxmox 0.111.1":     "terraform-provider-proxmox_v0.111.1",
			"siderolabs/talos 0.10.1": "lab-providers",
		}))
	}, map[string]func(*testscript.TestScript, bool, []string){"proxmox": proxmox})
}

// provide makes a provider mirror of programs, by source and version.
func provide(env *testscript.Env, programs map[string]string) error {
	mirror := filepath.Join(env.WorkDir, ".mirror")
	for provider, program := range programs {
		source, version, _ := strings.Cut(provider, " ")
		home := filepath.Join(mirror, "registry.terraform.io", source, version, "linux_amd64")
		binary := fmt.Sprintf("terraform-provider-%s_v%s", filepath.Base(source), version)
		path, err := filepath.Abs(filepath.Join("../../bin", program))
		if err == nil {
			_, err = os.Stat(path)
		}
		if err != nil {
			return fmt.Errorf("provider %s is not built (make build): %w", provider, err)
		}
		if err := errors.Join(os.MkdirAll(home, 0o700),
			os.Symlink(path, filepath.Join(home, binary))); err != nil {
			return err
		}
	}
	rc := filepath.Join(env.WorkDir, "terraformrc")
	env.Setenv("TF_CLI_CONFIG_FILE", rc)
	return os.WriteFile(rc,
		fmt.Appendf(nil, "provider_installation {\n  filesystem_mirror { path = %q }\n}\n", mirror), 0o600)
}
