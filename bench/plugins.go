package main

import (
	"fmt"
	"strings"
)

// plugged is a module of the real bpg/proxmox and of the stand-ins, by the layer of the unit.
func plugged(u unit) string {
	m := plugins[u.layer]
	var b strings.Builder
	b.WriteString("terraform {\n  required_providers {\n")
	for _, kind := range m.providers {
		source := "bpg/proxmox"
		for _, p := range providers {
			if p.kind == kind {
				source = p.source
			}
		}
		fmt.Fprintf(&b, "    %s = { source = %q }\n", kind, source)
	}
	b.WriteString("  }\n}\n" + m.text)
	fmt.Fprintf(&b, "\noutput %q {\n  value = %s\n}\n", u.output(), m.output)
	return b.String()
}

// access is what the platform has besides, if other roots have objects in the cluster.
const access = `
variable "cluster_access" {
  type      = string
  sensitive = true
}

output "kubeconfig" {
  value     = var.cluster_access
  sensitive = true
}
`

// clustered is a module of bpg/proxmox and of the stand-ins for the first two layers, and of objects in the
// cluster for the others.
func clustered(u unit) string {
	switch u.layer {
	case "secrets":
		return plugged(u)
	case platformLayer:
		return plugged(u) + access
	}
	size := ""
	if u.layer == changedLayer {
		size = "\n    size = tostring(var." + changedVariable + ")"
	}
	return fmt.Sprintf(`terraform {
  required_providers {
    kubernetes = { source = "hashicorp/kubernetes" }
  }
}

resource "kubernetes_config_map_v1" "this" {
  metadata {
    name      = %q
    namespace = "default"
  }
  data = {
    from = var.%s%s
  }
}

output %q {
  value = kubernetes_config_map_v1.this.id
}
`, u.name, unit{name: u.needs[0]}.output(), size, u.output())
}

// A pluginModule is the main.tf of one layer.
type pluginModule struct {
	providers    []string
	text, output string
}

const infisicalProvider = `
variable "infisical_host" { type = string }

provider "infisical" {
  host = var.infisical_host
  auth = { universal = {} }
}
`

var plugins = map[string]pluginModule{
	"secrets": {[]string{"random", "talos", "tls"}, `
resource "random_password" "database" {
  length  = 32
  special = false
}

resource "tls_private_key" "serviceaccount" {
  algorithm = "ECDSA"
}

resource "talos_machine_secrets" "cluster" {}
`, "sha256(tls_private_key.serviceaccount.public_key_pem)"},
	"platform": {[]string{"proxmox"}, `
variable "proxmox_endpoint" { type = string }

variable "proxmox_api_token" {
  type      = string
  sensitive = true
}

provider "proxmox" {
  endpoint  = var.proxmox_endpoint
  api_token = var.proxmox_api_token
}

resource "proxmox_virtual_environment_vm" "node" {
  for_each        = { cp-01 = 421, worker-01 = 422 }
  name            = "bench-${each.key}"
  description     = var.seed_id
  node_name       = "proxmox"
  vm_id           = each.value
  tags            = ["bench", "castle"]
  stop_on_destroy = true

  cpu {
    cores = 2
    type  = "x86-64-v2-AES"
  }
  memory { dedicated = 2048 }
  operating_system { type = "l26" }
  network_device { bridge = "vmbr0" }
  disk {
    datastore_id = "local-lvm"
    interface    = "scsi0"
    size         = 8
    file_format  = "raw"
  }
}
`, `join(" ", [for node in proxmox_virtual_environment_vm.node : node.id])`},
	"engine": {[]string{"infisical"}, infisicalProvider + `
resource "infisical_secret" "access" {
  workspace_id = "bench"
  env_slug     = "prod"
  folder_path  = "/bench"
  name         = "ACCESS"
  value        = var.machines_id
}
`, "infisical_secret.access.name"},
	"networking": {[]string{"random"}, `
resource "random_password" "pool" {
  length  = var.pool_size
  keepers = { access = var.access_id }
}
`, "random_password.pool.id"},
	"storage": {[]string{"random", "tls"}, `
resource "tls_private_key" "volume" {
  algorithm = "ED25519"
}

resource "random_password" "volume" {
  length  = 16
  keepers = { access = var.access_id }
}
`, "tls_private_key.volume.id"},
	"gitops": {[]string{"infisical", "tls"}, infisicalProvider + `
resource "tls_private_key" "deploy" {
  algorithm = "ED25519"
}

resource "infisical_secret" "deploy" {
  workspace_id = "bench"
  env_slug     = "prod"
  folder_path  = "/bench"
  name         = "DEPLOY"
  value        = "${var.access_id} ${tls_private_key.deploy.public_key_openssh}"
}
`, "infisical_secret.deploy.name"},
}

// gates are what castle checks of each layer, live, also if there is nothing to do.
var gates = map[string]string{
	"platform": `
preflight "vm_ids" "free" {
  endpoint  = var.proxmox_endpoint
  api_token = var.proxmox_api_token
  vm_ids    = { cp-01 = 421, worker-01 = 422 }
  names     = { cp-01 = "bench-cp-01", worker-01 = "bench-worker-01" }
  tags      = ["castle", cluster.name]
  resource  = "proxmox_virtual_environment_vm.node"
}

gate "http" "api" {
  url     = "${var.proxmox_endpoint}/api2/json/version"
  status  = [200, 401]
  ca_file = "CA_FILE"
}
`,
	"engine": `
gate "http" "infisical" {
  url     = "${var.infisical_host}/api/status"
  status  = [200, 404]
  ca_file = "CA_FILE"
}
`,
}
