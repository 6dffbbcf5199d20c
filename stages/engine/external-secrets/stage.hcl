stage {
  summary = "External Secrets copies Infisical's secrets into the cluster"

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

# From 0.17 on the older versions of the kinds are not served any more.
gate "crd" "kinds" {
  version = "v1"
  timeout = "5m"

  names = [
    "secretstores.external-secrets.io",
    "clustersecretstores.external-secrets.io",
    "externalsecrets.external-secrets.io",
    "clusterexternalsecrets.external-secrets.io",
  ]
}

gate "workload" "controller" {
  kind      = "Deployment"
  namespace = var.external_secrets_namespace
  name      = "external-secrets"
}

gate "workload" "webhook" {
  kind      = "Deployment"
  namespace = var.external_secrets_namespace
  name      = "external-secrets-webhook"
}

gate "workload" "cert_controller" {
  kind      = "Deployment"
  namespace = var.external_secrets_namespace
  name      = "external-secrets-cert-controller"
}

# Running Pods hide it: their connections live on, and nothing reaches the next one.
gate "network_policy" "traffic" {
  namespace = var.external_secrets_namespace
}

gate "endpoint_slice" "webhook" {
  namespace = var.external_secrets_namespace
  service   = "external-secrets-webhook"
}

# The cert-controller fills the CA into one configuration after the other and
# reports ready after the first. The request is a dry run and stores nothing.
gate "webhook" "store" {
  configuration = "secretstore-validate"
  stable        = 3

  accepts = [
    {
      apiVersion = "external-secrets.io/v1"
      kind       = "ClusterSecretStore"
      metadata   = { name = "castle-probe" }
      spec = {
        provider = {
          infisical = {
            auth = {
              universalAuthCredentials = {
                clientId     = { name = "castle-probe", namespace = var.external_secrets_namespace, key = "clientId" }
                clientSecret = { name = "castle-probe", namespace = var.external_secrets_namespace, key = "clientSecret" }
              }
            }
            secretsScope = { projectSlug = "castle-probe", environmentSlug = "castle-probe" }
          }
        }
      }
    },
  ]

  # The schema accepts empty slugs; only the webhook rejects them.
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
  stable        = 3

  accepts = [
    {
      apiVersion = "external-secrets.io/v1"
      kind       = "ExternalSecret"
      metadata   = { name = "castle-probe", namespace = var.external_secrets_namespace }
      spec = {
        secretStoreRef = { name = "castle-probe", kind = "ClusterSecretStore" }
        data           = [{ secretKey = "castle-probe", remoteRef = { key = "castle-probe" } }]
      }
    },
  ]

  # It has no data to fetch.
  rejects = [
    {
      apiVersion = "external-secrets.io/v1"
      kind       = "ExternalSecret"
      metadata   = { name = "castle-probe", namespace = var.external_secrets_namespace }
      spec       = { secretStoreRef = { name = "castle-probe", kind = "ClusterSecretStore" } }
    },
  ]
}
