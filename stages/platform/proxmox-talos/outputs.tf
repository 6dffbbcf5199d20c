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

output "worker_addresses" {
  description = "Address of each worker, by name: the nodes that take Pods without tolerations."
  value       = { for name, address in local.addresses : name => address if !contains(local.controlplanes, name) }
}

output "cluster_endpoint" {
  description = "URL of the Kubernetes API."
  value       = local.cluster_endpoint
}
