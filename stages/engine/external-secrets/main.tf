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

resource "helm_release" "external_secrets" {
  name       = "external-secrets"
  namespace  = kubernetes_namespace_v1.external_secrets.metadata[0].name
  repository = var.external_secrets_chart_repository
  chart      = "external-secrets"
  version    = var.external_secrets_chart_version

  # The gates wait, and wait for more than Helm does. A Helm that gives up leaves
  # a failed release that the state lacks; upgrade_install finds it again.
  wait            = false
  upgrade_install = true

  values = concat(
    [yamlencode({ installCRDs = true })],
    var.external_secrets_values,
  )
}
