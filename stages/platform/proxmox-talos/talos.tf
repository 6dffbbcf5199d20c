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
    each.value.longhorn_disk != null ? local.longhorn_patches : [],
    [local.hostname_patches[each.key]],
    var.talos_config_patches,
  )
}

# replace_triggered_by notices a machine that is replaced, but not one that was lost
# and is created once more: this stands between and is replaced in both cases.
# The id is unknown while a machine is created and known in every other change: a machine that
# only gets another network card, and with it another address, keeps its configuration.
resource "terraform_data" "instance" {
  for_each = var.nodes

  triggers_replace = proxmox_virtual_environment_vm.node[each.key].id
}

# It once stood for the machine, by the address of its network card.
removed {
  from = terraform_data.machine

  lifecycle {
    destroy = false
  }
}

# Every call goes to the machine itself, never to the VIP: the VIP needs etcd.
resource "talos_machine_configuration_apply" "node" {
  for_each = var.nodes

  node                        = each.value.address
  endpoint                    = each.value.address
  client_configuration        = var.client_configuration
  machine_configuration_input = data.talos_machine_configuration.node[each.key].machine_configuration

  depends_on = [proxmox_virtual_environment_vm.node]

  lifecycle {
    # A replaced machine has no configuration.
    replace_triggered_by = [terraform_data.instance[each.key]]
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
