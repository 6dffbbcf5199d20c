stage {
  summary      = "Creates the machines on Proxmox"
  ends_cluster = true

  inputs = {
    cluster_name                  = cluster.name
    proxmox_api_token             = secrets.proxmox_api_token
    talos_images                  = platform.talos_images
    serviceaccount_public_key_pem = secrets.serviceaccount_public_key_pem
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
  tags       = distinct(["castle", cluster.name])
  pool       = var.proxmox_pool
  resource   = "proxmox_virtual_environment_vm.node"

  uuids_from_key = true
}
