output "vault_jwt_path" {
  description = "Where the auth method is mounted: what a VaultAuth or a ClusterSecretStore names."
  value       = vault_jwt_auth_backend.cluster.path
}

output "vault_jwt_issuer" {
  description = "Issuer that a token must name."
  value       = vault_jwt_auth_backend.cluster.bound_issuer
}
