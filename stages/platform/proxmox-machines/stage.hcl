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

  # What the machines use of their nodes, with the defaults of main.tf. A machine is a default that adds nothing.
  storages = {
    for name, node in var.nodes : name => distinct(compact(concat(
      [
        coalesce(node.datastore_id, lookup(var.machine_defaults, node.role, node).datastore_id, lookup(var.machine_defaults, "all", node).datastore_id, var.proxmox_disk_datastore),
        coalesce(node.longhorn_datastore_id, lookup(var.machine_defaults, node.role, node).longhorn_datastore_id, lookup(var.machine_defaults, "all", node).longhorn_datastore_id, ""),
      ],
      [for disk in coalesce(node.disks, lookup(var.machine_defaults, node.role, node).disks, lookup(var.machine_defaults, "all", node).disks, {}) : disk.datastore_id],
    )))
  }
  bridges = {
    for name, node in var.nodes : name => distinct(compact(concat(
      [coalesce(node.bridge, lookup(var.machine_defaults, node.role, node).bridge, lookup(var.machine_defaults, "all", node).bridge, var.network.bridge)],
      [for card in coalesce(node.network_devices, lookup(var.machine_defaults, node.role, node).network_devices, lookup(var.machine_defaults, "all", node).network_devices, []) : card.bridge],
    )))
  }
  pci = {
    for name, node in var.nodes : name => [
      for device in coalesce(node.pci, lookup(var.machine_defaults, node.role, node).pci, lookup(var.machine_defaults, "all", node).pci, []) : device.mapping
    ]
  }
  usb = {
    for name, node in var.nodes : name => [
      for device in coalesce(node.usb, lookup(var.machine_defaults, node.role, node).usb, lookup(var.machine_defaults, "all", node).usb, []) : device.mapping
    ]
  }
  images = {
    for name, node in var.nodes : name => coalesce(node.image, lookup(var.machine_defaults, node.role, node).image, lookup(var.machine_defaults, "all", node).image, "")
  }
  templates = {
    for name, node in var.nodes : name => concat([
      for given in [node, lookup(var.machine_defaults, node.role, node), lookup(var.machine_defaults, "all", node)] :
      format("%s/%d", coalesce(given.template.node_name, node.node_name, var.proxmox_node_name), given.template.vm_id)
      if given.template != null
    ], [""])[0]
  }
  ha = {
    for name, node in var.nodes : name => concat([
      for given in [node, lookup(var.machine_defaults, node.role, node), lookup(var.machine_defaults, "all", node)] :
      given.ha.enabled if given.ha != null
    ], [false])[0]
  }
  leased = { for name, node in var.nodes : name => node.address == null }

  uuids_from_key = true
}
