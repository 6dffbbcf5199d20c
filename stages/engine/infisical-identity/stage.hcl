stage {
  summary = "The Infisical identity of External Secrets, where Flux installs External Secrets"

  inputs = {
    external_secrets_client_id     = secrets.eso_client_id
    external_secrets_client_secret = secrets.eso_client_secret
  }
}

# Where the state was lost and the cluster was not.
adopt "kubernetes_namespace_v1.external_secrets" {
  id = var.external_secrets_namespace

  exists "kubernetes_object" {
    api_version = "v1"
    kind        = "Namespace"
    name        = var.external_secrets_namespace
    labels      = { "app.kubernetes.io/managed-by" = "castle" }
  }
}

adopt "kubernetes_secret_v1.identity" {
  id = "${var.external_secrets_namespace}/${var.external_secrets_identity_secret}"

  exists "kubernetes_object" {
    api_version = "v1"
    kind        = "Secret"
    namespace   = var.external_secrets_namespace
    name        = var.external_secrets_identity_secret
    labels      = { "app.kubernetes.io/managed-by" = "castle" }
  }
}
