# The cards with routes of their own, as Talos finds them: net1 is in slot 0x13.
locals {
  routed = {
    for name, cards in local.cards : name => [
      for i, card in cards : {
        name     = "net${i}"
        selector = "link.driver == \"virtio_net\" && link.bus_path.endsWith(\":${format("%x", 18 + i)}.0\")"
        routes   = card.routes
      }
      if try(length(card.routes) > 0, false)
    ]
  }
}

# castle reads this output before the machines exist: it depends on no resource.
output "machines" {
  description = "The machines by name: role, address, and what platform/talos needs to configure each. castle reads it, too."
  value = {
    for name, machine in local.machines : name => merge({
      role     = machine.role
      address  = machine.address
      reset    = false # it ends with its disks
      platform = "nocloud"
      # The first card, whatever its name (ens18, enp6s18) and address: Proxmox puts net0 into slot 0x12 of its bus.
      uplink       = "link.driver == \"virtio_net\" && link.bus_path.endsWith(\":12.0\")"
      install_disk = "/dev/sda"
      # scsi1. Talos does not read the serial number of a SCSI disk, and QEMU names its link after the interface.
      longhorn_disk = machine.longhorn_disk == null ? null : "\"/dev/disk/by-id/scsi-0QEMU_QEMU_HARDDISK_drive-scsi1\" in disk.symlinks"
      }, length(flatten(local.cards[name][*].addresses)) == 1 ? {} : {
      # Talos pins the addresses of kubelet and etcd to them. Other cards are for other traffic.
      subnets = compact(["${cidrhost("${var.network.gateway}/${var.network.prefix}", 0)}/${var.network.prefix}", var.network.secondary_subnet])
      }, length(local.routed[name]) == 0 ? {} : {
      links = local.routed[name]
    })
  }
}

# castle holds the first lease of a machine, and sets it as the address in machines.
output "leases" {
  description = "What a DHCP server has given those machines that have no address: by name, address, null where no guest agent has told it, and the mac_address that has it."
  value = {
    for name, machine in local.machines : name => {
      mac_address = proxmox_virtual_environment_vm.node[name].network_device[0].mac_address
      address = try([
        for address in proxmox_virtual_environment_vm.node[name].ipv4_addresses[index(
          proxmox_virtual_environment_vm.node[name].mac_addresses, upper(proxmox_virtual_environment_vm.node[name].network_device[0].mac_address),
        )] : address
        if address != var.vip && cidrhost("${address}/${var.network.prefix}", 0) == cidrhost("${var.network.gateway}/${var.network.prefix}", 0)
      ][0], null)
    }
    if machine.address == null
  }
}

output "instance" {
  description = "What changes with each machine: castle adds the run that has created it."
  value       = { for name in keys(var.nodes) : name => "" }
}
