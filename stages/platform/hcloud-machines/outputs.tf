# castle reads this output before the machines exist: it depends on no resource.
output "machines" {
  description = "The machines by name: role, address, and what platform/talos needs to configure each. castle reads it, too."
  value = {
    for name, node in var.nodes : name => {
      role          = node.role
      address       = node.address
      reset         = false # it ends with its disk
      platform      = "hcloud"
      uplink        = "link.driver == \"virtio_net\" && link.mtu == uint(1450)" # the card in the private network
      install_disk  = "/dev/sda"
      longhorn_disk = null
      subnets       = [var.network.subnet] # Talos pins the addresses of kubelet and etcd to it, beside the public one
    }
  }
}

output "instance" {
  description = "What changes with each machine: castle adds the run that has created it."
  value       = { for name in keys(var.nodes) : name => "" }
}
