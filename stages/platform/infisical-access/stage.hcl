stage {
  summary = "Writes kubeconfig and talosconfig to the cluster's folder in Infisical"

  inputs = {
    kubeconfig       = platform.kubeconfig
    talosconfig      = platform.talosconfig
    infisical_folder = "/ephemeral-castle/${cluster.name}/${cluster.platform}"
  }
}

adopt "infisical_secret.kubeconfig" {
  id = "${var.infisical_project_id}:${var.infisical_environment}:${var.infisical_folder}:KUBECONFIG_CONTENT"

  exists "infisical_secret" {
    host        = var.infisical_host
    project_id  = var.infisical_project_id
    environment = var.infisical_environment
    folder      = var.infisical_folder
    name        = "KUBECONFIG_CONTENT"
  }
}

adopt "infisical_secret.talosconfig" {
  id = "${var.infisical_project_id}:${var.infisical_environment}:${var.infisical_folder}:TALOSCONFIG_CONTENT"

  exists "infisical_secret" {
    host        = var.infisical_host
    project_id  = var.infisical_project_id
    environment = var.infisical_environment
    folder      = var.infisical_folder
    name        = "TALOSCONFIG_CONTENT"
  }
}
