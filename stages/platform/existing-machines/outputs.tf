# castle reads this output before the stage is applied: it depends on no resource.
output "machines" {
  description = "The machines by name: role, address, and what platform/talos needs to configure each. castle reads it, too."
  value = {
    for name, node in var.nodes : name => merge({
      role         = node.role
      address      = node.address
      reset        = true # the machine stays, and waits for a configuration again
      platform     = var.talos_platform
      uplink       = var.talos_uplink
      install_disk = node.install_disk
      # The disk gets one partition. After a reset it is found and used again.
      longhorn_disk = node.longhorn_disk == null ? null : "disk.dev_path == \"${node.longhorn_disk}\" || \"${node.longhorn_disk}\" in disk.symlinks"
      }, var.network.secondary_subnet == null ? {} : {
      # Talos pins the addresses of kubelet and etcd to them.
      subnets = ["${cidrhost("${var.network.gateway}/${var.network.prefix}", 0)}/${var.network.prefix}", var.network.secondary_subnet]
      }, node.secondary_address == null ? {} : {
      links = [{
        name      = "uplink" # the VIP's card has no other name
        selector  = var.talos_uplink
        addresses = ["${node.secondary_address}/${split("/", var.network.secondary_subnet)[1]}"]
        routes    = { for gateway in var.network.secondary_gateway[*] : can(regex(":", gateway)) ? "::/0" : "0.0.0.0/0" => gateway }
        dhcp      = node.dhcp && !can(regex(":", node.address))
      }]
    })
  }
}

output "instance" {
  description = "What changes with each machine: nothing, as castle creates none."
  value       = { for name in keys(var.nodes) : name => "" }
}
