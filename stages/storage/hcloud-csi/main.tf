resource "kubernetes_secret_v1" "token" {
  metadata {
    name      = "hcloud-csi"
    namespace = "kube-system"
    labels    = { "app.kubernetes.io/managed-by" = "castle" }
  }

  data = { token = var.hcloud_token }
}

# Its Pods are privileged, which Talos permits in kube-system.
resource "helm_release" "csi" {
  name       = "hcloud-csi"
  namespace  = kubernetes_secret_v1.token.metadata[0].namespace
  repository = var.hcloud_csi_chart_repository
  chart      = "hcloud-csi"
  version    = var.hcloud_csi_chart_version

  # The gates wait, and wait for more than Helm does. A Helm that gives up leaves
  # a failed release that the state lacks; upgrade_install finds it again.
  wait            = false
  upgrade_install = true

  values = concat(
    [yamlencode({
      controller = {
        hcloudToken = {
          existingSecret = { name = kubernetes_secret_v1.token.metadata[0].name, key = "token" }
        }
        extraEnvVars = [{ name = "HCLOUD_ENDPOINT", value = var.hcloud_endpoint }]

        # A volume outlives the servers. By these labels it is found, and is known for this cluster's.
        volumeExtraLabels = {
          castle_cluster = var.hcloud_csi_cluster_name
          castle_uuid    = uuidv5("oid", "${var.serviceaccount_public_key_pem}/hcloud_volume/${var.hcloud_csi_cluster_name}")
        }
      }
      storageClasses = [{
        name                = var.hcloud_csi_class_name
        defaultStorageClass = true
        reclaimPolicy       = var.hcloud_csi_reclaim_policy
      }]
    })],
    var.hcloud_csi_values,
  )
}
