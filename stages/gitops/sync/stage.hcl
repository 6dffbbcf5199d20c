stage {
  summary = "Points Flux at the Git repository, or OCI artifact, that holds everything else"

  # The objects that it applies request secrets from the start.
  needs = [engine]

  inputs = {
    sync_namespace    = gitops.flux_namespace
    sync_cluster_name = cluster.name
    git_username      = secrets.git_username
    git_token         = secrets.git_token

    git_ssh_private_key = secrets.git_ssh_private_key
    git_ssh_known_hosts = secrets.git_ssh_known_hosts

    oci_auths    = secrets.registry_auths
    sops_age_key = secrets.sops_age_key
  }
}

# Where the state was lost and the cluster was not.
adopt "kubernetes_secret_v1.git" {
  id = "${var.sync_namespace}/flux-system"

  exists "kubernetes_object" {
    api_version = "v1"
    kind        = "Secret"
    namespace   = var.sync_namespace
    name        = "flux-system"
    labels      = { "app.kubernetes.io/managed-by" = "castle" }
  }
}

adopt "kubernetes_secret_v1.sops[0]" {
  id = var.sync_sops_age ? "${var.sync_namespace}/sops-age" : null

  exists "kubernetes_object" {
    api_version = "v1"
    kind        = "Secret"
    namespace   = var.sync_namespace
    name        = "sops-age"
    labels      = { "app.kubernetes.io/managed-by" = "castle" }
  }
}

adopt "kubernetes_config_map_v1.cluster_vars" {
  id = "${var.sync_namespace}/cluster-vars"

  exists "kubernetes_object" {
    api_version = "v1"
    kind        = "ConfigMap"
    namespace   = var.sync_namespace
    name        = "cluster-vars"
    labels      = { "app.kubernetes.io/managed-by" = "castle" }
  }
}

# Applied early, with a deferred gate: it converges only when addresses and volumes
# exist, but can start before them.
gate "flux" "converged" {
  needs   = [networking, storage]
  timeout = "20m"
  # The root may bring further objects at any time.
  stable = 3
}
