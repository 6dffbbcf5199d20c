output "cilium_pool_name" {
  description = "Name of the CiliumLoadBalancerIPPool."
  value       = var.cilium_pool_name
  # A stage that reads the name may use the pool.
  depends_on = [helm_release.cilium_pool]
}
