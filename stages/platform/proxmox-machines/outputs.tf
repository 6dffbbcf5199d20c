# castle reads this output before the machines exist: it depends on no resource.
output "machines" {
  description = "The machines by name: role, address, and what platform/talos needs to configure each. castle reads it, too."
  value = {
    for name, node in var.nodes : name => {
      role          = node.role
      address       = node.address
      reset         = false # it ends with its disks
      platform      = "nocloud"
      uplink        = "link.driver == \"virtio_net\"" # the only card, whatever its name (ens18, enp6s18)
      install_disk  = "/dev/sda"
      longhorn_disk = node.longhorn_disk == null ? null : "!disk.cdrom && !disk.readonly" # the second disk
    }
  }
}

output "instance" {
  description = "What changes with each machine: castle adds the run that has created it."
  value       = { for name in keys(var.nodes) : name => "" }
}
