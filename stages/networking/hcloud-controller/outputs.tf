output "hcloud_controller_namespace" {
  description = "Namespace of the cloud controller manager, which holds the Secret with the token."
  value       = helm_release.controller.namespace
}
