output "longhorn_namespace" {
  description = "Namespace of Longhorn."
  value       = kubernetes_namespace_v1.longhorn.metadata[0].name
}

output "storage_class_name" {
  description = "The StorageClass that Longhorn makes; it is the default one."
  value       = "longhorn"
  # A stage that reads the name may claim volumes.
  depends_on = [helm_release.longhorn]
}
