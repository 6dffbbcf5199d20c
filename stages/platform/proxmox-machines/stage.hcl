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

  # What the machines use of their nodes. The defaults are those of main.tf.
  storages = {
    for name, node in var.nodes : name => distinct(compact(concat(
      [
        coalesce(
          node.datastore_id,
          (node.role == "worker" ? var.machine_defaults.worker : var.machine_defaults.controlplane).datastore_id,
          var.machine_defaults.all.datastore_id,
          var.proxmox_disk_datastore,
        ),
        coalesce(
          node.longhorn_datastore_id,
          (node.role == "worker" ? var.machine_defaults.worker : var.machine_defaults.controlplane).longhorn_datastore_id,
          var.machine_defaults.all.longhorn_datastore_id,
          "",
        ),
      ],
      [for disk in coalesce(
        node.disks,
        (node.role == "worker" ? var.machine_defaults.worker : var.machine_defaults.controlplane).disks,
        var.machine_defaults.all.disks,
        {},
      ) : disk.datastore_id],
    )))
  }
  bridges = {
    for name, node in var.nodes : name => distinct(compact(concat(
      [coalesce(
        node.bridge,
        (node.role == "worker" ? var.machine_defaults.worker : var.machine_defaults.controlplane).bridge,
        var.machine_defaults.all.bridge,
        var.network.bridge,
      )],
      [for card in coalesce(
        node.network_devices,
        (node.role == "worker" ? var.machine_defaults.worker : var.machine_defaults.controlplane).network_devices,
        var.machine_defaults.all.network_devices,
        [],
      ) : card.bridge],
    )))
  }
  pci = {
    for name, node in var.nodes : name => [
      for device in coalesce(
        node.pci,
        (node.role == "worker" ? var.machine_defaults.worker : var.machine_defaults.controlplane).pci,
        var.machine_defaults.all.pci,
        [],
      ) : device.mapping
    ]
  }
  usb = {
    for name, node in var.nodes : name => [
      for device in coalesce(
        node.usb,
        (node.role == "worker" ? var.machine_defaults.worker : var.machine_defaults.controlplane).usb,
        var.machine_defaults.all.usb,
        [],
      ) : device.mapping
    ]
  }
  images = {
    for name, node in var.nodes : name => coalesce(
      node.image,
      (node.role == "worker" ? var.machine_defaults.worker : var.machine_defaults.controlplane).image,
      var.machine_defaults.all.image,
      "",
    )
  }

  uuids_from_key = true
}
