stage {
  summary = "External Secrets brings Infisical's secrets into the cluster"

  inputs = {
    external_secrets_client_id     = secrets.eso_client_id
    external_secrets_client_secret = secrets.eso_client_secret
  }
}

gate "workload" "controller" {
  kind      = "Deployment"
  namespace = self.external_secrets_namespace
  name      = "external-secrets"
}

gate "endpoint_slice" "webhook" {
  namespace = self.external_secrets_namespace
  service   = "external-secrets-webhook"
}

# The cert-controller fills the CA into one configuration after the other and
# calls itself ready after the first.
gate "webhook" "store" {
  configuration = "secretstore-validate"

  rejects = [
    {
      apiVersion = "external-secrets.io/v1"
      kind       = "ClusterSecretStore"
      metadata   = { name = "castle-probe" }
      spec = {
        provider = {
          infisical = {
            auth         = {}
            secretsScope = { projectSlug = "", environmentSlug = "" }
          }
        }
      }
    },
  ]
}

gate "webhook" "secret" {
  configuration = "externalsecret-validate"

  # It says neither what to fetch nor from where.
  rejects = [
    {
      apiVersion = "external-secrets.io/v1"
      kind       = "ExternalSecret"
      metadata   = { name = "castle-probe", namespace = self.external_secrets_namespace }
      spec       = { secretStoreRef = { name = "castle-probe", kind = "ClusterSecretStore" } }
    },
  ]
}
