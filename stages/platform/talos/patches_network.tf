# The patches of a cluster's own networks, and of machines with addresses in several. Others have none of them.
locals {
  networks = { for name, subnets in { podSubnets = var.pod_subnets, serviceSubnets = var.service_subnets } : name => subnets if subnets != null }

  network_patches = {
    for name, machine in var.machines : name => concat(
      var.pod_subnets == null && var.service_subnets == null ? [] : [yamlencode({ cluster = { network = local.networks } })],
      # One address of each family for the node. Members of etcd reach one another by the first family alone.
      length(machine.subnets) == 0 ? [] : [yamlencode({ machine = { kubelet = { nodeIP = { validSubnets = machine.subnets } } } })],
      length(machine.subnets) == 0 || machine.role == "worker" ? [] : [yamlencode({ cluster = { etcd = { advertisedSubnets = [machine.subnets[0]] } } })],
      flatten([
        for link in machine.links : concat([
          yamlencode({ apiVersion = "v1alpha1", kind = "LinkAliasConfig", name = link.name, selector = { match = link.selector } }),
          yamlencode({
            apiVersion = "v1alpha1"
            kind       = "LinkConfig"
            name       = link.name
            addresses  = [for address in link.addresses : { address = address }]
            # Talos takes no /0 as destination: a default route has none.
            routes = [for network, gateway in link.routes : merge({ gateway = gateway }, endswith(network, "/0") ? {} : { destination = network })]
          }),
          ], [
          for name in [link.name] : yamlencode({ apiVersion = "v1alpha1", kind = "DHCPv4Config", name = name }) if link.dhcp
        ])
      ]),
    )
  }
}
