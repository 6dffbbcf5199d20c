stage {
  summary = "The addresses that MetalLB may assign"

  inputs = {
    address_pool_namespace = networking.metallb_namespace
    address_pool_vip       = platform.vip
    address_pool_nodes     = platform.node_addresses
  }
}

# Neither kind has a status. MetalLB's webhook validated both when Helm applied them, so the gates compare
# what decides whether a Service gets an address, and whether every node may announce it.
gate "condition" "pool" {
  api_version = "metallb.io/v1beta1"
  kind        = "IPAddressPool"
  namespace   = var.address_pool_namespace
  name        = var.address_pool_name
  timeout     = "2m"

  fields = {
    "spec.autoAssign"        = "true"
    "spec.serviceAllocation" = ""
  }
}

# No API tells which interfaces a machine has, so the advertisement names none.
gate "condition" "advertisement" {
  api_version = "metallb.io/v1beta1"
  kind        = "L2Advertisement"
  namespace   = var.address_pool_namespace
  name        = var.address_pool_name
  timeout     = "2m"

  fields = {
    "spec.interfaces"    = ""
    "spec.nodeSelectors" = ""
  }
}

# The stage's precondition covers its own pool. MetalLB takes anybody's.
gate "address_pool" "reserved" {
  namespace = var.address_pool_namespace
  reserved  = merge(var.address_pool_nodes, var.address_pool_vip == null ? {} : { "the Kubernetes API" = var.address_pool_vip })
  timeout   = "2m"
}
