output "cni" {
  description = "The network plugin that the stage brings. `castle check` compares it with platform/talos."
  value       = "cilium"
}

output "cilium_namespace" {
  description = "Namespace of Cilium, which holds the leases of announced Services."
  value       = helm_release.cilium.namespace
}
