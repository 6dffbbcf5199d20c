# A chart of custom resources only: a plan then needs no CRD in the cluster.
resource "helm_release" "address_pool" {
  name      = "address-pool"
  namespace = var.address_pool_namespace
  chart     = "${path.module}/chart"
  version   = yamldecode(file("${path.module}/chart/Chart.yaml")).version

  wait            = false
  upgrade_install = true

  values = [yamlencode({
    # A changed file of a local chart is no change to Terraform by itself.
    chartDigest = sha256(join("", [for f in fileset("${path.module}/chart", "**") : "${f} ${filesha256("${path.module}/chart/${f}")}"]))

    name      = var.address_pool_name
    addresses = var.metallb_addresses
  })]

  lifecycle {
    precondition {
      condition     = alltrue([for range in local.ranges : range.first <= range.last])
      error_message = "metallb_addresses has a range that ends before it begins."
    }

    # MetalLB answers ARP for the addresses of its pools without checking for other
    # owners: a pool that contains the API's address makes the cluster unreachable.
    precondition {
      condition     = length(local.inside) == 0
      error_message = "metallb_addresses contains ${join(", ", local.inside)}."
    }
  }
}
