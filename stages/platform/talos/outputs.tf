output "kubeconfig" {
  description = "Kubernetes' administrator access, through the cluster's endpoint. Kubernetes gates and providers connect with it."
  value       = talos_cluster_kubeconfig.cluster.kubeconfig_raw
  sensitive   = true
}

output "talosconfig" {
  description = "Talos' administrator access to every machine. Talos gates connect with it."
  value       = data.talos_client_configuration.cluster.talos_config
  sensitive   = true
}

output "vip" {
  description = "Address of the Kubernetes API, virtual or a load balancer's; null if the cluster has only its name."
  value       = var.vip != null ? var.vip : can(cidrhost("${var.api_endpoint}/32", 0)) ? var.api_endpoint : null
}

output "node_addresses" {
  description = "Address of each node, by name."
  value       = local.addresses
}

output "worker_count" {
  description = "How many nodes take Pods without tolerations: workers, and control planes that are allowed to."
  value       = length(local.open)
}

output "pod_subnets" {
  description = "Networks of Pods that the cluster has instead of Talos' own; null without."
  value       = var.pod_subnets
}

output "cluster_endpoint" {
  description = "URL of the Kubernetes API."
  value       = local.cluster_endpoint
}
