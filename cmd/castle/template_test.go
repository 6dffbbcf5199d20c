//go:build integration

package main

import (
	"bytes"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ephemeral-castle/castle/templates"
)

// Each template is rehearsed once, and each place for the secrets once: a platform and a place share only the
// outputs that both places have.
var (
	rehearsedOften = map[string]string{"proxmox-talos": "secrets=infisical"}
	rehearsedLong  = map[string]string{"metal-talos": "secrets=local", "hcloud-talos": "secrets=vault"}
)

// TestTemplates follows the steps of a new user with the built castle: a repository,
// the smallest cluster of each template, check, rehearse. In the rehearsal, Flux applies
// the skeleton of its repository.
func TestTemplates(t *testing.T) {
	templatesWork(t, rehearsedOften)
}

// TestTemplatesElsewhere rehearses the other templates.
func TestTemplatesElsewhere(t *testing.T) {
	templatesWork(t, rehearsedLong)
}

// templatesWork tries each template with each place for the secrets, and rehearses those that are named.
func templatesWork(t *testing.T, rehearsed map[string]string) {
	t.Helper()
	t.Parallel()
	answers := []string{"control_planes=1", "git_url=https://git.example.com/me/green"}
	lan := []string{"network=192.168.1.0/24", "gateway=192.168.1.1"}
	of := map[string][]string{
		"proxmox-talos": append(lan, "proxmox_endpoint=https://192.168.1.10:8006/", "proxmox_node=pve",
			"workers=1"),
		"metal-talos":  append(lan, "workers=0"), // one machine does all
		"hcloud-talos": {"workers=1", "hcloud_location=nbg1"},
	}
	ways := map[string][]string{
		"secrets=infisical": {"infisical_project_id=8f3c1d52-6a0e-4b7f-9d21-5e4c7a90b6d3",
			"infisical_project_slug=castle"},
		"secrets=local": nil,
		"secrets=vault": {"vault_address=https://vault.example.org:8200"},
	}
	all, err := fs.ReadDir(templates.Files, ".")
	if err != nil {
		t.Fatal(err)
	}
	for _, template := range all {
		if template.Name() == "gitops" || template.Name() == "metal-bare" {
			continue // of the repository that Flux reads; TestImportedCluster
		}
		for start, more := range ways {
			t.Run(template.Name()+" "+start, func(t *testing.T) {
				t.Parallel()
				repository := filepath.Join(t.TempDir(), "castles")
				built(t, "init", repository)
				args := []string{"-C", repository, "new", "green", "--template", template.Name()}
				for _, a := range slices.Concat([]string{start}, answers, of[template.Name()], more) {
					args = append(args, "--set", a)
				}
				if template.Name() == "proxmox-talos" {
					args = append(args, "--gitops", filepath.Join(t.TempDir(), "fleet"))
				}
				if out := built(t, args...); !strings.Contains(out, "  castle rehearse green\n") {
					t.Errorf("new does not say what comes next:\n%s", out)
				}
				if out := built(t, "-C", repository,
					"check"); !strings.Contains(out, ": 0 problems, 0 warnings") {
					t.Errorf("check:\n%s", out)
				}
				if rehearsedOften[template.Name()]+rehearsedLong[template.Name()] == "" {
					t.Fatal("say how it is rehearsed")
				}
				if rehearsed[template.Name()] != start {
					return
				}
				if out := built(t, "-C", repository, "rehearse",
					"green"); !strings.Contains(out, "Left over: nothing") {
					t.Errorf("something is left over:\n%s", out)
				}
			})
		}
	}
}

// TestImportedCluster rehearses a cluster of talhelper, which has the template metal-bare.
func TestImportedCluster(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file, repository := filepath.Join(dir, "talconfig.yaml"), filepath.Join(dir, "castles")
	err := os.WriteFile(file, []byte(`
clusterName: green
talosVersion: v1.13.0
kubernetesVersion: v1.36.3
endpoint: https://10.1.0.5:6443
clusterPodNets: [10.5.0.0/16]
nodes:
  - hostname: green-a
    ipAddress: 10.1.0.11
    controlPlane: true
    installDisk: /dev/nvme0n1
    networkInterfaces:
      - interface: eth0
        addresses: [10.1.0.11/24]
        routes: [{ network: 0.0.0.0/0, gateway: 10.1.0.1 }]
        vip: { ip: 10.1.0.5 }
  - hostname: green-b
    ipAddress: 10.1.0.12
    installDisk: /dev/sda
    nodeLabels: { tier: batch }
    nodeTaints: { gpu: "present:NoSchedule" }
    kernelModules: [{ name: br_netfilter }]
`), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	built(t, "init", repository)
	built(t, "-C", repository, "import", "talhelper", file)
	if out := built(t, "-C", repository, "rehearse", "green"); !strings.Contains(out, "Left over: nothing") {
		t.Errorf("something is left over:\n%s", out)
	}
}

// built runs the castle of bin/, which has its lab beside it, and returns what it printed.
func built(t *testing.T, args ...string) string {
	t.Helper()
	castle, err := filepath.Abs("../../bin/castle")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(castle); err != nil {
		t.Fatalf("castle is not built (make build): %v", err)
	}
	var out bytes.Buffer
	cmd := exec.CommandContext(t.Context(), castle, args...)
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		t.Fatalf("castle %s: %v\n%s", strings.Join(args, " "), err, out.String())
	}
	return out.String()
}
