locals {
  controlplanes    = sort([for name, machine in var.machines : name if machine.role == "controlplane"])
  first            = var.machines[local.controlplanes[0]].address
  addresses        = { for name, machine in var.machines : name => machine.address }
  api_host         = var.api_endpoint != null ? var.api_endpoint : var.vip
  cluster_endpoint = format(can(regex(":", local.api_host)) ? "https://[%s]:%d" : "https://%s:%d", local.api_host, var.api_port)
}

data "talos_machine_configuration" "node" {
  for_each = var.machines

  cluster_name       = var.cluster_name
  cluster_endpoint   = local.cluster_endpoint
  machine_type       = each.value.role
  machine_secrets    = var.machine_secrets
  talos_version      = var.talos_contract # the format: a new one would change every machine at once
  kubernetes_version = var.kubernetes_version
  docs               = false
  examples           = false

  config_patches = concat(
    local.machine_patches[each.key],
    each.value.role == "controlplane" ? local.controlplane_patches[each.key] : [],
    local.vip_patches[each.key],
    local.longhorn_patches[each.key],
    local.cni_patches,
    local.cloud_patches,
    local.network_patches[each.key],
    local.scheduling_patches[each.key],
    local.node_patches[each.key],
    local.host_patches,
    local.tailscale_patches[each.key],
    var.talos_config_patches,
    each.value.role == "controlplane" ? var.talos_controlplane_config_patches : var.talos_worker_config_patches,
    lookup(var.talos_machine_config_patches, each.key, []),
  )
}

# castle's preflight finds these resources by their address in Terraform: node["<name>"].
# Every call goes to the machine itself, never to the VIP: the VIP needs etcd.
resource "talos_machine_configuration_apply" "node" {
  for_each = var.machines

  node                        = each.value.address
  endpoint                    = each.value.address
  client_configuration        = var.client_configuration
  machine_configuration_input = data.talos_machine_configuration.node[each.key].machine_configuration

  # A machine that stays is reset, and waits for a configuration again; another ends with its disks. All reset
  # at once: a graceful reset leaves etcd first, which the last member cannot. All three arguments are set,
  # because release 0.10 of the provider fails without one of them.
  on_destroy = each.value.reset ? { reset = true, graceful = false, reboot = true } : null

  # A machine fetches the installer with it.
  depends_on = [talos_image_factory_schematic.extensions]
}

resource "talos_machine_bootstrap" "cluster" {
  node                 = local.first
  endpoint             = local.first
  client_configuration = var.client_configuration

  depends_on = [talos_machine_configuration_apply.node]
}

resource "talos_cluster_kubeconfig" "cluster" {
  node                 = local.first
  endpoint             = local.first
  client_configuration = var.client_configuration

  depends_on = [talos_machine_bootstrap.cluster]
}

data "talos_client_configuration" "cluster" {
  cluster_name         = var.cluster_name
  client_configuration = var.client_configuration
  endpoints            = [for name in local.controlplanes : local.addresses[name]]
  nodes                = values(local.addresses)
}
