stage {
  summary      = "Creates the machines on Proxmox, and Kubernetes on them with Talos"
  ends_cluster = true

  inputs = {
    cluster_name                   = cluster.name
    proxmox_api_token              = secrets.proxmox_api_token
    talos_images                   = platform.talos_images
    client_configuration           = secrets.talos_client_configuration
    machine_secrets                = secrets.talos_machine_secrets
    serviceaccount_private_key_pem = secrets.serviceaccount_private_key_pem
    serviceaccount_public_key_pem  = secrets.serviceaccount_public_key_pem
  }
}

# The provider adopts any VM with the id and later deletes it: only this preflight
# protects a foreign VM. The uuid proves a VM castle's own: main.tf derives it from the key.
preflight "vm_ids" "free" {
  endpoint   = var.proxmox_endpoint
  api_token  = var.proxmox_api_token
  ca_file    = var.proxmox_ca_file
  insecure   = var.proxmox_insecure
  vm_ids     = { for name, node in var.nodes : name => node.vm_id }
  names      = { for name, node in var.nodes : name => "${cluster.name}-${name}" }
  node_names = { for name, node in var.nodes : name => node.node_name != null ? node.node_name : var.proxmox_node_name }
  tags       = ["castle", cluster.name]
  pool       = var.proxmox_pool
  resource   = "proxmox_virtual_environment_vm.node"

  uuids_from_key = true
}

# A cluster whose state was lost is not bootstrapped again: the machines know.
adopt "talos_machine_bootstrap.cluster" {
  id = "machine_bootstrap"

  exists "talos_bootstrapped" {
    endpoints            = { for name, node in var.nodes : name => node.address if node.role == "controlplane" }
    resource             = "proxmox_virtual_environment_vm.node"
    client_configuration = var.client_configuration
  }
}

# One machine is not yet a quorum, and the VIP is held before the API answers
# behind it; it moves once more while control planes join.
gate "talos_etcd" "quorum" {
  voters  = length([for node in var.nodes : node if node.role == "controlplane"])
  timeout = "15m"
}

gate "virtual_ip" "holder" {
  address = var.vip
  stable  = 3
  timeout = "15m"
}

gate "kubernetes_api" "vip" {
  address   = var.vip
  endpoints = [for node in var.nodes : node.address if node.role == "controlplane"]
  stable    = 3
  timeout   = "15m"
}

# The node of a machine that was removed stays until somebody deletes it.
gate "nodes" "ready" {
  names   = [for name in keys(var.nodes) : "${cluster.name}-${name}"]
  timeout = "15m"
}

# A machine keeps its Talos until it is upgraded, whatever its configuration names.
gate "talos_version" "machines" {
  version   = var.talos_version
  machines  = { for name, node in var.nodes : name => node.address }
  installer = "${var.talos_image_factory}/nocloud-installer/${var.talos_schematic_id}:${var.talos_version}"
  timeout   = "15m"
}

gate "kubernetes_version" "machines" {
  version   = var.kubernetes_version
  endpoints = [for node in var.nodes : node.address if node.role == "controlplane"]
  timeout   = "15m"
}
