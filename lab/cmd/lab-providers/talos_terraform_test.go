//go:build integration

package main

import (
	"strings"
	"testing"

	"github.com/ephemeral-castle/castle/internal/emulator/talos"
)

const talosConfig = `
terraform {
  required_providers { talos = { source = "siderolabs/talos", version = "~> 0.10" } }
}
variable "address" { default = "127.0.0.1" }
variable "patches" {
  type    = list(string)
  default = []
}
variable "machine" { default = false }
resource "talos_machine_secrets" "c" { talos_version = "v1.13" }
data "talos_client_configuration" "c" {
  cluster_name         = "blue"
  client_configuration = talos_machine_secrets.c.client_configuration
  endpoints            = [var.address]
}
data "talos_machine_configuration" "n" {
  for_each           = toset(["controlplane", "worker"])
  cluster_name       = "blue"
  cluster_endpoint   = "https://${var.address}:6443"
  machine_type       = each.key
  machine_secrets    = talos_machine_secrets.c.machine_secrets
  talos_version      = "v1.13"
  kubernetes_version = "v1.36.3"
  docs               = false
  examples           = false
  config_patches = concat([yamlencode({
    apiVersion = "v1alpha1"
    kind       = "HostnameConfig"
    auto       = "off"
    hostname   = "blue-cp-01"
  }), yamlencode({
    machine = { install = { disk = "/dev/vda" } }
  })], var.patches)
}
resource "talos_machine_configuration_apply" "n" {
  count                       = var.machine ? 1 : 0
  node                        = var.address
  client_configuration        = talos_machine_secrets.c.client_configuration
  machine_configuration_input = data.talos_machine_configuration.n["controlplane"].machine_configuration
}
resource "talos_machine_bootstrap" "c" {
  count                = var.machine ? 1 : 0
  node                 = talos_machine_configuration_apply.n[0].node
  client_configuration = talos_machine_secrets.c.client_configuration
}
resource "talos_cluster_kubeconfig" "c" {
  count                = var.machine ? 1 : 0
  node                 = talos_machine_bootstrap.c[0].node
  client_configuration = talos_machine_secrets.c.client_configuration
}
output "controlplane" {
  value     = data.talos_machine_configuration.n["controlplane"].machine_configuration
  sensitive = true
}
output "talosconfig" {
  value     = data.talos_client_configuration.c.talos_config
  sensitive = true
}
output "kubeconfig" {
  value     = one(talos_cluster_kubeconfig.c[*].kubeconfig_raw)
  sensitive = true
}
`

func TestTalosSecretsAndConfigurationsStayAsTheyAre(t *testing.T) {
	w := module(t, talosConfig)
	w.apply()
	w.unchanged()
	out := w.outputs()
	for _, want := range []string{"kind: HostnameConfig", "hostname: blue-cp-01", "disk: /dev/vda",
		"image: ghcr.io/siderolabs/installer:v1.12.0", "kube-apiserver:v1.36.3"} {
		if !strings.Contains(out["controlplane"].(string), want) {
			t.Errorf("the control plane's configuration lacks %q", want)
		}
	}
	if !strings.Contains(out["talosconfig"].(string), "127.0.0.1") {
		t.Error("the talosconfig lacks its endpoint")
	}
	code, text := w.run("plan", `-var=patches=["machine: { nonsense: 1 }"]`)
	if code == 0 || !strings.Contains(text, "nonsense") {
		t.Errorf("a patch that Talos does not know: exit %d\n%s", code, text)
	}
	w.must("destroy", "-auto-approve")
}

func TestAMachineIsConfiguredBootstrappedAndAskedForItsKubeconfig(t *testing.T) {
	const address = "127.77.10.11"
	fleet := talos.New(talos.Config{})
	t.Cleanup(fleet.Close)
	if err := fleet.Boot(talos.Machine{Address: address, Name: "cp-01"}); err != nil {
		t.Fatal(err)
	}
	w := module(t, talosConfig, "TF_VAR_address="+address, "TF_VAR_machine=true")
	w.apply()
	w.unchanged()
	if got := fleet.Stage(address); got != talos.Running {
		t.Errorf("the machine is %s", got)
	}
	if kubeconfig := w.outputs()["kubeconfig"].(string); !strings.Contains(kubeconfig,
		"https://"+address+":6443") {
		t.Error("the kubeconfig names another server")
	}
	changed := w.must("apply", "-auto-approve",
		`-var=patches=["machine: { sysctls: { vm.overcommit_memory: 1 } }"]`)
	if !strings.Contains(changed, "0 added, 1 changed, 0 destroyed") {
		t.Errorf("a patch should change the applied configuration alone:\n%s", changed)
	}
	w.must("destroy", "-auto-approve", `-var=patches=["machine: { sysctls: { vm.overcommit_memory: 1 } }"]`)
}

func TestAMachineThatIsToBeResetWaitsForAConfigurationAgain(t *testing.T) {
	const address = "127.77.10.12"
	fleet := talos.New(talos.Config{})
	t.Cleanup(fleet.Close)
	if err := fleet.Place(talos.Machine{Address: address, Name: "cp-01"}); err != nil {
		t.Fatal(err)
	}
	reset := strings.Replace(talosConfig, `["controlplane"].machine_configuration
}`, `["controlplane"].machine_configuration
  on_destroy = {
    reset    = true
    graceful = false
    reboot   = true
  }
}`, 1)
	w := module(t, reset, "TF_VAR_address="+address, "TF_VAR_machine=true")
	for range 2 { // the machine serves another cluster afterwards
		w.apply()
		w.unchanged()
		if got := fleet.Stage(address); got != talos.Running {
			t.Errorf("the machine is %s", got)
		}
		w.must("destroy", "-auto-approve")
		if got := fleet.Stage(address); got != talos.Maintenance {
			t.Errorf("after the destroy the machine is %s", got)
		}
	}
}
