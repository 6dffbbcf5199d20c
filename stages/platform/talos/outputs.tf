output "kubeconfig" {
  description = "Kubernetes' administrator access, through the VIP. Kubernetes gates and providers connect with it."
  value       = talos_cluster_kubeconfig.cluster.kubeconfig_raw
  sensitive   = true
}

output "talosconfig" {
  description = "Talos' administrator access to every machine. Talos gates connect with it."
  value       = data.talos_client_configuration.cluster.talos_config
  sensitive   = true
}

output "vip" {
  description = "Virtual address of the Kubernetes API."
  value       = var.vip
}

output "node_addresses" {
  description = "Address of each node, by name."
  value       = local.addresses
}

output "worker_count" {
  description = "How many nodes take Pods without tolerations: workers, and control planes that are allowed to."
  value       = length(local.open)
}

output "cluster_endpoint" {
  description = "URL of the Kubernetes API."
  value       = local.cluster_endpoint
}
