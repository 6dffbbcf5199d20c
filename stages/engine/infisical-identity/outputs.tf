output "external_secrets_namespace" {
  description = "Namespace of External Secrets and of its machine identity."
  value       = kubernetes_namespace_v1.external_secrets.metadata[0].name
}

output "external_secrets_identity_secret" {
  description = "Name of the Secret with the machine identity (keys clientId and clientSecret)."
  value       = kubernetes_secret_v1.identity.metadata[0].name
}
