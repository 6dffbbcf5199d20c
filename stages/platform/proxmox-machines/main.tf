locals {
  # Proxmox node of each machine.
  hosts = { for name, node in var.nodes : name => coalesce(node.node_name, var.proxmox_node_name) }

  # Proxmox keeps tags sorted; any other order would be a change in every plan.
  tags = sort(distinct(["castle", var.cluster_name]))
}

# castle's preflight knows these by their address: node["<name>"].
resource "proxmox_virtual_environment_vm" "node" {
  for_each = var.nodes

  name        = "${var.cluster_name}-${each.key}"
  description = "Talos ${each.value.role} of the cluster ${var.cluster_name}. Made by castle; do not edit."
  node_name   = local.hosts[each.key]
  vm_id       = each.value.vm_id
  tags        = local.tags
  pool_id     = var.proxmox_pool
  machine     = "q35"
  on_boot     = true

  # No guest agent can shut the VM down, and these machines need no clean shutdown before they are
  # destroyed. An agent block, even a disabled one, would be a change after an import.
  stop_on_destroy = true
  # A changed attribute would stop and start all machines at once, and etcd with them.
  reboot_after_update = false
  # Frees every image on every storage that carries the VM's id: on shared storage also another Proxmox cluster's.
  delete_unreferenced_disks_on_destroy = false

  # The identity of the machine before it exists: castle records it, and treats whatever else
  # appears at the id as somebody else's.
  smbios {
    uuid = uuidv5("oid", "${var.serviceaccount_public_key_pem}/${var.cluster_name}-${each.key}")
  }

  scsi_hardware = "virtio-scsi-single"
  boot_order    = ["scsi0"]

  operating_system {
    type = "l26"
  }

  cpu {
    cores = each.value.cores
    type  = "x86-64-v2-AES"
  }

  memory {
    dedicated = each.value.memory
  }

  network_device {
    bridge  = var.network.bridge
    model   = "virtio"
    vlan_id = var.network.vlan_id
  }

  disk {
    interface    = "scsi0"
    datastore_id = var.proxmox_disk_datastore
    import_from  = var.talos_images[local.hosts[each.key]]
    size         = each.value.system_disk
    discard      = "on"
    iothread     = true
    ssd          = true
  }

  dynamic "disk" {
    for_each = each.value.longhorn_disk[*]

    content {
      interface    = "scsi1"
      datastore_id = var.proxmox_disk_datastore
      size         = disk.value
      file_format  = "raw"
      discard      = "on"
      iothread     = true
      ssd          = true
    }
  }

  # Talos reads its address here before it has a configuration.
  initialization {
    datastore_id = var.proxmox_disk_datastore

    dynamic "dns" {
      for_each = length(var.network.dns) > 0 ? [var.network.dns] : []

      content {
        servers = dns.value
      }
    }

    ip_config {
      ipv4 {
        address = "${each.value.address}/${var.network.prefix}"
        gateway = var.network.gateway
      }
    }
  }

  lifecycle {
    # The image is the disk's origin, not its content: Talos upgrades itself in
    # place, and an imported VM does not have this attribute. An existing VM keeps its identity.
    ignore_changes = [disk[0].import_from, smbios]
  }
}
