output "secret_store_name" {
  description = "Name of the ClusterSecretStore that ExternalSecrets refer to."
  value       = var.secret_store_name
  # A stage that reads the name may use the store.
  depends_on = [helm_release.secret_store]
}
