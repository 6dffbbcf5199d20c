# Cilium reads it in this namespace alone. In the values of the chart, it would be in the output of a plan.
resource "kubernetes_secret_v1" "bgp" {
  count = var.cilium_bgp == null || nonsensitive(var.cilium_bgp_password == null) ? 0 : 1

  metadata {
    name      = "${var.cilium_pool_name}-bgp"
    namespace = var.cilium_pool_namespace
    labels    = { "app.kubernetes.io/managed-by" = "castle" }
  }

  data = { password = var.cilium_bgp_password }
}

# A chart of custom resources only: a plan then needs no CRD in the cluster.
resource "helm_release" "cilium_pool" {
  name      = "cilium-pool"
  namespace = var.cilium_pool_namespace
  chart     = "${path.module}/chart"
  version   = yamldecode(file("${path.module}/chart/Chart.yaml")).version

  wait            = false
  upgrade_install = true

  values = [yamlencode({
    # A changed file of a local chart is no change to Terraform by itself.
    chartDigest = sha256(join("", [for f in fileset("${path.module}/chart", "**") : "${f} ${filesha256("${path.module}/chart/${f}")}"]))

    name       = var.cilium_pool_name
    interfaces = var.cilium_pool_interfaces
    blocks     = local.blocks
    bgp        = var.cilium_bgp
    secret     = one(kubernetes_secret_v1.bgp[*].metadata[0].name)
    families   = distinct([for pair in local.ends : can(regex(":", pair[0])) ? "ipv6" : "ipv4"])
  })]

  lifecycle {
    precondition {
      condition     = alltrue([for range in local.ranges : range.first <= range.last])
      error_message = "cilium_pool_addresses has a range that ends before it begins."
    }

    # Cilium answers ARP for the addresses that it gives to Services without checking for other
    # owners: a pool that contains the API's address makes the cluster unreachable.
    precondition {
      condition     = length(local.inside) == 0
      error_message = "cilium_pool_addresses contains ${join(", ", local.inside)}."
    }
  }
}
