# A chart of one object: a plan then needs no CRD in the cluster.
resource "helm_release" "secret_store" {
  name      = "secret-store"
  namespace = var.secret_store_namespace
  chart     = "${path.module}/chart"

  wait            = false
  upgrade_install = true

  values = [yamlencode({
    name    = var.secret_store_name
    hostAPI = var.infisical_host
    scope = {
      projectSlug     = var.infisical_project_slug
      environmentSlug = var.infisical_environment
      secretsPath     = var.secret_store_folder
    }
    identity = {
      namespace = var.secret_store_namespace
      secret    = var.secret_store_identity_secret
    }
  })]
}
