stage {
  summary = "The addresses that MetalLB may give away"

  inputs = {
    address_pool_namespace = networking.metallb_namespace
    address_pool_vip       = platform.vip
    address_pool_nodes     = platform.node_addresses
  }
}
