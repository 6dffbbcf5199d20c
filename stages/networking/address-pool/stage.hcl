stage {
  summary = "The addresses that MetalLB may give away"

  inputs = {
    address_pool_namespace = networking.metallb_namespace
    address_pool_vip       = platform.vip
    address_pool_nodes     = platform.node_addresses
  }
}

# Neither says of itself whether it is in use. MetalLB's webhook has judged both
# when Helm applied them; what is left is that they are still there.
gate "condition" "pool" {
  api_version = "metallb.io/v1beta1"
  kind        = "IPAddressPool"
  namespace   = var.address_pool_namespace
  name        = var.address_pool_name
  exists      = true
  timeout     = "2m"
}

gate "condition" "advertisement" {
  api_version = "metallb.io/v1beta1"
  kind        = "L2Advertisement"
  namespace   = var.address_pool_namespace
  name        = var.address_pool_name
  exists      = true
  timeout     = "2m"
}
