output "infisical_access_folder" {
  description = "Folder in Infisical that holds KUBECONFIG_CONTENT and TALOSCONFIG_CONTENT."
  value       = infisical_secret.kubeconfig.folder_path
}
