output "bootstrap_namespaces" {
  description = "Namespaces that were made here."
  value       = [for name in keys(kubernetes_namespace_v1.wanted) : name]
}
