locals {
  s3 = startswith(coalesce(var.longhorn_backup_target, "none"), "s3://")
}

# Longhorn's managers and instance managers are privileged.
resource "kubernetes_namespace_v1" "longhorn" {
  metadata {
    name = var.longhorn_namespace

    labels = {
      "app.kubernetes.io/managed-by"       = "castle"
      "pod-security.kubernetes.io/enforce" = "privileged"
      "pod-security.kubernetes.io/audit"   = "privileged"
      "pod-security.kubernetes.io/warn"    = "privileged"
    }
  }
}

resource "kubernetes_secret_v1" "backup" {
  count = local.s3 ? 1 : 0

  metadata {
    name      = "longhorn-backup"
    namespace = kubernetes_namespace_v1.longhorn.metadata[0].name
    labels    = { "app.kubernetes.io/managed-by" = "castle" }
  }

  data = merge(
    {
      AWS_ACCESS_KEY_ID     = var.longhorn_s3_access_key_id
      AWS_SECRET_ACCESS_KEY = var.longhorn_s3_secret_access_key
    },
    var.longhorn_s3_endpoint == null ? {} : { AWS_ENDPOINTS = var.longhorn_s3_endpoint },
    var.longhorn_s3_ca_file == null ? {} : { AWS_CERT = file(var.longhorn_s3_ca_file) },
  )

  lifecycle {
    precondition {
      condition     = var.longhorn_s3_access_key_id != null && var.longhorn_s3_secret_access_key != null
      error_message = "longhorn_backup_target is a bucket of S3, but the secrets layer has no S3 credentials (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY)."
    }
  }
}

resource "helm_release" "longhorn" {
  name       = "longhorn"
  namespace  = kubernetes_namespace_v1.longhorn.metadata[0].name
  repository = var.longhorn_chart_repository
  chart      = "longhorn"
  version    = var.longhorn_chart_version

  # The gates wait, and wait for more than Helm does: most of Longhorn is made
  # by its manager and belongs to no release.
  wait            = false
  upgrade_install = true

  values = concat(
    [yamlencode({
      persistence = {
        defaultClass             = true
        defaultClassReplicaCount = var.longhorn_replica_count
      }
      defaultSettings = {
        defaultDataPath                   = var.longhorn_data_path
        storageOverProvisioningPercentage = tostring(var.longhorn_over_provisioning_percentage)
        # Uninstalling fails without it; castle asks before it destroys.
        deletingConfirmationFlag = true
      }
    })],
    # The names of the secret's instances: known also before the secret is made.
    [for secret in kubernetes_secret_v1.backup : yamlencode({
      defaultBackupStore = {
        backupTarget                 = var.longhorn_backup_target
        backupTargetCredentialSecret = secret.metadata[0].name
      }
    })],
    var.longhorn_backup_target == null || local.s3 ? [] : [yamlencode({
      defaultBackupStore = { backupTarget = var.longhorn_backup_target }
    })],
    var.longhorn_values,
  )
}
