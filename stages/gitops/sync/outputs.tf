output "cluster_vars" {
  description = "What the repository's manifests may substitute."
  value       = kubernetes_config_map_v1.cluster_vars.data
}
