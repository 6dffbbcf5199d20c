# Speakers use the host's network and raw sockets.
resource "kubernetes_namespace_v1" "metallb" {
  metadata {
    name = var.metallb_namespace

    labels = {
      "app.kubernetes.io/managed-by"       = "castle"
      "pod-security.kubernetes.io/enforce" = "privileged"
      "pod-security.kubernetes.io/audit"   = "privileged"
      "pod-security.kubernetes.io/warn"    = "privileged"
    }
  }
}

locals {
  controlplane_toleration = {
    key      = "node-role.kubernetes.io/control-plane"
    operator = "Exists"
    effect   = "NoSchedule"
  }
}

resource "helm_release" "metallb" {
  name       = "metallb"
  namespace  = kubernetes_namespace_v1.metallb.metadata[0].name
  repository = var.metallb_chart_repository
  chart      = "metallb"
  version    = var.metallb_chart_version

  # The gates wait, and wait for more than Helm does. A Helm that gives up leaves
  # a failed release that the state lacks; upgrade_install finds it again.
  wait            = false
  upgrade_install = true

  values = concat(
    [yamlencode({
      controller = { tolerations = [local.controlplane_toleration] }
      speaker = {
        tolerations = [local.controlplane_toleration]
        frr         = { enabled = false } # layer 2 only
      }
    })],
    var.metallb_values,
  )
}
