stage {
  summary = "The addresses that Cilium may assign, announced on layer 2 or by BGP"

  inputs = {
    cilium_pool_namespace = platform.cilium_namespace
    cilium_pool_vip       = platform.vip
    cilium_pool_nodes     = platform.node_addresses
  }
}

# Where the state was lost and the cluster was not.
adopt "kubernetes_secret_v1.bgp[0]" {
  id = var.cilium_bgp != null && var.cilium_bgp_password != null ? "${var.cilium_pool_namespace}/${var.cilium_pool_name}-bgp" : null

  exists "kubernetes_object" {
    api_version = "v1"
    kind        = "Secret"
    namespace   = var.cilium_pool_namespace
    name        = "${var.cilium_pool_name}-bgp"
    labels      = { "app.kubernetes.io/managed-by" = "castle" }
  }
}

# The operator counts the addresses of a pool that it has read: by it, Services get some.
gate "condition" "pool" {
  api_version = "cilium.io/v2"
  kind        = "CiliumLoadBalancerIPPool"
  name        = var.cilium_pool_name
  type        = "cilium.io/IPsTotal"
  status      = "Unknown" # it has never another one: the message is the number
  timeout     = "5m"

  fields = {
    "spec.disabled"        = "false"
    "spec.serviceSelector" = ""
  }
}

# Agents set no condition. Without a selector, every node may announce every Service.
gate "condition" "policy" {
  when        = var.cilium_bgp == null
  api_version = "cilium.io/v2alpha1"
  kind        = "CiliumL2AnnouncementPolicy"
  name        = var.cilium_pool_name
  timeout     = "5m"

  fields = {
    "spec.loadBalancerIPs" = "true"
    "spec.nodeSelector"    = ""
    "spec.serviceSelector" = ""
  }
}

# An address that no agent announces reaches nobody. Where there is no Service yet, the gate is open.
gate "announcement" "services" {
  when      = var.cilium_bgp == null
  namespace = var.cilium_pool_namespace
  timeout   = "5m"
}

# A router learns the addresses in its sessions with the nodes.
gate "bgp_sessions" "routers" {
  when    = var.cilium_bgp != null
  peers   = var.cilium_bgp != null ? keys(var.cilium_bgp.peers) : []
  timeout = "5m"
}
