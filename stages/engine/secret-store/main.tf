# A chart of one object: a plan then needs no CRD in the cluster.
resource "helm_release" "secret_store" {
  name      = "secret-store"
  namespace = var.secret_store_namespace
  chart     = "${path.module}/chart"
  version   = yamldecode(file("${path.module}/chart/Chart.yaml")).version

  wait            = false
  upgrade_install = true

  values = [yamlencode({
    # A changed file of a local chart is no change to Terraform by itself.
    chartDigest = sha256(join("", [for f in fileset("${path.module}/chart", "**") : "${f} ${filesha256("${path.module}/chart/${f}")}"]))

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
