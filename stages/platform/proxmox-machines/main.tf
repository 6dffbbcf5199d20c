locals {
  # Proxmox node of each machine.
  hosts = { for name, node in var.nodes : name => coalesce(node.node_name, var.proxmox_node_name) }

  # Proxmox keeps tags sorted; any other order would be a change in every plan.
  tags = sort(distinct(["castle", var.cluster_name]))

  # The identity of each machine before it exists: castle records it, and treats whatever else appears at the id as
  # somebody else's.
  uuids = { for name in keys(var.nodes) : name => uuidv5("oid", "${var.serviceaccount_public_key_pem}/${var.cluster_name}-${name}") }

  # What machine_defaults and a machine leave open. stage.hcl repeats those that its preflight checks.
  defaults = {
    cores           = 4
    cpu_type        = "x86-64-v2-AES"
    cpu_units       = null
    numa            = false
    memory          = 8192
    memory_floating = 0
    machine_type    = "q35"
    bios            = "seabios"
    tpm             = false
    startup         = null

    address           = null
    secondary_address = null

    image                 = null
    template              = null
    datastore_id          = var.proxmox_disk_datastore
    system_disk           = 32
    longhorn_disk         = null
    longhorn_datastore_id = null
    disks                 = {}

    bridge          = var.network.bridge
    vlan_id         = var.network.vlan_id
    mac_address     = null
    mtu             = null
    network_devices = []

    pci = []
    usb = []

    ha = null
  }

  # The machine's own value wins, then that of its role, then that of all.
  machines = {
    for name, node in var.nodes : name => merge(local.defaults, { dhcp = node.address == null }, [
      for given in [lookup(var.machine_defaults, "all", node), lookup(var.machine_defaults, node.role, node), node] :
      { for attribute, value in given : attribute => value if value != null }
    ]...)
  }

  # The cards of each machine in Proxmox' order: net0 has the machine's address.
  cards = {
    for name, machine in local.machines : name => concat(
      [{
        bridge      = machine.bridge
        vlan_id     = machine.vlan_id
        mac_address = machine.mac_address
        mtu         = machine.mtu
        addresses = concat([machine.dhcp ? "dhcp" : "${machine.address}/${var.network.prefix}"], [
          for secondary in machine.secondary_address[*] : "${secondary}/${split("/", var.network.secondary_subnet)[1]}"
        ])
        gateways = compact([machine.dhcp ? null : var.network.gateway, var.network.secondary_gateway])
      }],
      [
        for card in machine.network_devices :
        merge({ mac_address = null }, card, { bridge = coalesce(card.bridge, machine.bridge), addresses = try(card.address[*], []), gateways = [] })
      ],
    )
  }

  # Proxmox reports no address after the last one, so none may be configured there.
  addressed = {
    for name, cards in local.cards : name => slice(cards, 0, max([for i, card in cards : length(card.addresses) == 0 ? 0 : i + 1]...))
  }
}

# castle's preflight knows these by their address: node["<name>"].
resource "proxmox_virtual_environment_vm" "node" {
  for_each = local.machines

  name = "${var.cluster_name}-${each.key}"
  # A clone has a UUID of Proxmox' until the provider's second request: this one tells it from a foreign VM.
  description = "Talos ${each.value.role} of the cluster ${var.cluster_name}. Made by castle; do not edit.${each.value.template == null ? "" : " ${local.uuids[each.key]}"}"
  node_name   = local.hosts[each.key]
  vm_id       = each.value.vm_id
  tags        = local.tags
  pool_id     = var.proxmox_pool
  machine     = each.value.machine_type
  bios        = each.value.bios
  on_boot     = true

  # These machines need no clean shutdown before they are destroyed.
  stop_on_destroy = true
  # A changed attribute would stop and start all machines at once, and etcd with them.
  reboot_after_update = false
  # Frees every image on every storage that carries the VM's id: on shared storage also another Proxmox cluster's.
  delete_unreferenced_disks_on_destroy = false

  smbios {
    uuid = local.uuids[each.key]
  }

  # Proxmox learns an address from the guest alone. A refresh waits as long for an agent that does not answer.
  # Elsewhere, a block of an agent, even a disabled one, would be a change after an import.
  dynamic "agent" {
    for_each = each.value.address == null ? ["ipv4"] : []

    content {
      enabled = true
      timeout = "5m"

      wait_for_ip {
        ipv4 = true
      }
    }
  }

  # The template stays as it is.
  dynamic "clone" {
    for_each = each.value.template[*]

    content {
      vm_id        = clone.value.vm_id
      node_name    = coalesce(clone.value.node_name, local.hosts[each.key])
      full         = clone.value.full
      datastore_id = clone.value.full ? each.value.datastore_id : null
    }
  }

  scsi_hardware = "virtio-scsi-single"
  boot_order    = ["scsi0"]

  operating_system {
    type = "l26"
  }

  cpu {
    cores = each.value.cores
    type  = each.value.cpu_type
    units = each.value.cpu_units
    numa  = each.value.numa
  }

  memory {
    dedicated = each.value.memory
    floating  = each.value.memory_floating
  }

  dynamic "startup" {
    for_each = each.value.startup[*]

    content {
      order      = startup.value.order
      up_delay   = startup.value.up_delay
      down_delay = startup.value.down_delay
    }
  }

  dynamic "network_device" {
    for_each = local.cards[each.key]

    content {
      bridge      = network_device.value.bridge
      model       = "virtio"
      vlan_id     = network_device.value.vlan_id
      mac_address = try(upper(network_device.value.mac_address), null)
      mtu         = network_device.value.mtu
    }
  }

  # A machine that leaves has no image any more while it is still there.
  disk {
    interface    = "scsi0"
    datastore_id = each.value.datastore_id
    import_from  = each.value.template != null ? null : each.value.image != null ? each.value.image : lookup(var.talos_images, each.key, lookup(var.talos_images, "node/${local.hosts[each.key]}", null))
    size         = each.value.system_disk
    discard      = "on"
    iothread     = true
    ssd          = true
  }

  # Talos finds a disk by its interface: scsi1 is /dev/disk/by-id/scsi-0QEMU_QEMU_HARDDISK_drive-scsi1.
  dynamic "disk" {
    for_each = merge(
      each.value.longhorn_disk == null ? {} : {
        scsi1 = { size = each.value.longhorn_disk, datastore_id = each.value.longhorn_datastore_id }
      },
      each.value.disks,
    )

    content {
      interface    = disk.key
      datastore_id = coalesce(disk.value.datastore_id, each.value.datastore_id)
      size         = disk.value.size
      file_format  = "raw"
      discard      = "on"
      iothread     = true
      ssd          = true
    }
  }

  dynamic "efi_disk" {
    for_each = each.value.bios == "ovmf" ? [each.value.datastore_id] : []

    content {
      datastore_id = efi_disk.value
      file_format  = "raw"
      type         = "4m"
    }
  }

  dynamic "tpm_state" {
    for_each = each.value.tpm ? [each.value.datastore_id] : []

    content {
      datastore_id = tpm_state.value
      version      = "v2.0"
    }
  }

  dynamic "hostpci" {
    for_each = each.value.pci

    content {
      device  = "hostpci${hostpci.key}"
      mapping = hostpci.value.mapping
      pcie    = coalesce(hostpci.value.pcie, true)
      rombar  = coalesce(hostpci.value.rombar, true)
      xvga    = coalesce(hostpci.value.primary_gpu, false)
    }
  }

  dynamic "usb" {
    for_each = each.value.usb

    content {
      mapping = usb.value.mapping
      usb3    = coalesce(usb.value.usb3, false)
    }
  }

  # Talos reads its addresses here before it has a configuration.
  initialization {
    datastore_id = each.value.datastore_id

    dynamic "dns" {
      for_each = length(var.network.dns) > 0 ? [var.network.dns] : []

      content {
        servers = dns.value
      }
    }

    dynamic "ip_config" {
      for_each = local.addressed[each.key]

      content {
        dynamic "ipv4" {
          for_each = [for address in ip_config.value.addresses : address if !can(regex(":", address))]

          content {
            address = ipv4.value
            gateway = one([for gateway in ip_config.value.gateways : gateway if !can(regex(":", gateway))])
          }
        }

        dynamic "ipv6" {
          for_each = [for address in ip_config.value.addresses : address if can(regex(":", address))]

          content {
            address = ipv6.value
            gateway = one([for gateway in ip_config.value.gateways : gateway if can(regex(":", gateway))])
          }
        }
      }
    }
  }

  lifecycle {
    # Image and template are the disk's origin, not its content: Talos upgrades itself in
    # place, and an imported VM does not have these attributes. An existing VM keeps its identity.
    ignore_changes = [disk[0].import_from, clone, smbios]
  }
}
