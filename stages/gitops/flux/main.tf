resource "kubernetes_namespace_v1" "flux" {
  metadata {
    name   = var.flux_namespace
    labels = { "app.kubernetes.io/managed-by" = "castle" }
  }
}

resource "helm_release" "flux" {
  name       = "flux2"
  namespace  = kubernetes_namespace_v1.flux.metadata[0].name
  repository = var.flux_chart_repository
  chart      = "flux2"
  version    = var.flux_chart_version

  # The gates wait, and wait for more than Helm does. A Helm that gives up leaves
  # a failed release that the state lacks; upgrade_install finds it again.
  wait            = false
  upgrade_install = true

  values = concat(
    [yamlencode({
      imageAutomationController = { create = var.flux_image_automation }
      imageReflectionController = { create = var.flux_image_automation }
    })],
    var.flux_values,
  )
}
