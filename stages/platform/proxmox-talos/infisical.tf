# Whoever operates the cluster finds its access where its other secrets are.
# Infisical refuses to create a secret that exists: stage.hcl adopts it first.
resource "infisical_secret" "kubeconfig" {
  workspace_id = var.infisical_project_id
  env_slug     = var.infisical_environment
  folder_path  = var.infisical_folder
  name         = "KUBECONFIG_CONTENT"
  value        = talos_cluster_kubeconfig.cluster.kubeconfig_raw
}

resource "infisical_secret" "talosconfig" {
  workspace_id = var.infisical_project_id
  env_slug     = var.infisical_environment
  folder_path  = var.infisical_folder
  name         = "TALOSCONFIG_CONTENT"
  value        = data.talos_client_configuration.cluster.talos_config
}
