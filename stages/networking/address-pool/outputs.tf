output "address_pool_name" {
  description = "Name of the IPAddressPool, for the annotation metallb.io/address-pool."
  value       = var.address_pool_name
  # A stage that reads the name may use the pool.
  depends_on = [helm_release.address_pool]
}
