locals {
  controlplanes    = sort([for name, node in var.nodes : name if node.role == "controlplane"])
  first            = var.nodes[local.controlplanes[0]].address
  addresses        = { for name, node in var.nodes : name => node.address }
  cluster_endpoint = "https://${var.vip}:6443"
}

data "talos_machine_configuration" "node" {
  for_each = var.nodes

  cluster_name       = var.cluster_name
  cluster_endpoint   = local.cluster_endpoint
  machine_type       = each.value.role
  machine_secrets    = var.machine_secrets
  talos_version      = var.talos_version
  kubernetes_version = var.kubernetes_version
  docs               = false
  examples           = false

  config_patches = concat(
    local.patches,
    each.value.role == "controlplane" ? local.controlplane_patches : [],
    local.node_patches[each.key],
    each.value.longhorn_disk != null ? local.longhorn_patches : [],
    var.talos_config_patches,
  )
}

# castle's preflight finds these resources by their address in Terraform: node["<name>"].
# Every call goes to the machine itself, never to the VIP: the VIP needs etcd.
resource "talos_machine_configuration_apply" "node" {
  for_each = var.nodes

  node                        = each.value.address
  endpoint                    = each.value.address
  client_configuration        = var.client_configuration
  machine_configuration_input = data.talos_machine_configuration.node[each.key].machine_configuration

  # The machines are reset, not deleted, and wait for a configuration again. All reset at
  # once: a graceful reset leaves etcd first, which the last member cannot. All three
  # arguments are set, because release 0.10 of the provider fails without one of them.
  on_destroy = {
    reset    = true
    graceful = false
    reboot   = true
  }
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
