output "storage_class_name" {
  description = "The StorageClass of volumes of Hetzner Cloud; it is the default one."
  value       = var.hcloud_csi_class_name
  # A stage that reads the name may claim volumes.
  depends_on = [helm_release.csi]
}
