stage {
  summary = "The ClusterSecretStore through which ExternalSecrets read Infisical"

  inputs = {
    secret_store_namespace       = engine.external_secrets_namespace
    secret_store_identity_secret = engine.external_secrets_identity_secret
  }
}

# Ready means that the operator has logged in at Infisical with the identity.
gate "condition" "store" {
  api_version = "external-secrets.io/v1"
  kind        = "ClusterSecretStore"
  name        = var.secret_store_name
  type        = "Ready"
  status      = "True"
}
