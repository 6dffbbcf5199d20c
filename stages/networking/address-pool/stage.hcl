stage {
  summary = "The addresses that MetalLB may assign"

  inputs = {
    address_pool_namespace = networking.metallb_namespace
    address_pool_vip       = platform.vip
    address_pool_nodes     = platform.node_addresses
  }
}

# Neither kind has a status. MetalLB's webhook validated both when Helm applied them,
# so the gates only check that they exist.
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
