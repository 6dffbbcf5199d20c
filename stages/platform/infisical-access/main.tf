# Credentials: INFISICAL_UNIVERSAL_AUTH_CLIENT_ID and _CLIENT_SECRET.
provider "infisical" {
  host = var.infisical_host

  auth = {
    universal = {}
  }
}

# Infisical holds the access to the cluster beside the cluster's other secrets. It refuses to create
# a secret that exists: stage.hcl adopts it first.
resource "infisical_secret" "kubeconfig" {
  workspace_id = var.infisical_project_id
  env_slug     = var.infisical_environment
  folder_path  = var.infisical_folder
  name         = "KUBECONFIG_CONTENT"
  value        = var.kubeconfig
}

resource "infisical_secret" "talosconfig" {
  workspace_id = var.infisical_project_id
  env_slug     = var.infisical_environment
  folder_path  = var.infisical_folder
  name         = "TALOSCONFIG_CONTENT"
  value        = var.talosconfig
}
