resource "kubernetes_namespace_v1" "external_secrets" {
  metadata {
    name   = var.external_secrets_namespace
    labels = { "app.kubernetes.io/managed-by" = "castle" }
  }
}

# The one secret that cannot come through External Secrets: its own identity.
resource "kubernetes_secret_v1" "identity" {
  metadata {
    name      = var.external_secrets_identity_secret
    namespace = kubernetes_namespace_v1.external_secrets.metadata[0].name
    labels    = { "app.kubernetes.io/managed-by" = "castle" }
  }

  data = {
    clientId     = var.external_secrets_client_id
    clientSecret = var.external_secrets_client_secret
  }
}
