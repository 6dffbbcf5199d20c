locals {
  # Flux's own bootstrap gives all of them this name, and repositories rely on it.
  name = "flux-system"

  ssh = startswith(var.git_url, "ssh://")
}

resource "kubernetes_secret_v1" "git" {
  metadata {
    name      = local.name
    namespace = var.sync_namespace
    labels    = { "app.kubernetes.io/managed-by" = "castle" }
  }

  data = local.ssh ? {
    identity    = var.git_ssh_private_key
    known_hosts = var.git_ssh_known_hosts
    } : {
    username = var.git_username
    password = var.git_token
  }

  lifecycle {
    precondition {
      condition     = !local.ssh || (var.git_ssh_private_key != null && var.git_ssh_known_hosts != null)
      error_message = "git_url is an ssh:// address, and the secrets layer lacks the deploy key or the server's keys (GIT_SSH_PRIVATE_KEY, GIT_SSH_KNOWN_HOSTS)."
    }
    precondition {
      condition     = local.ssh || var.git_token != null
      error_message = "The secrets layer has no token for git_url (GITHUB_TOKEN)."
    }
  }
}

# It must be there before the first Kustomization that substitutes from it.
resource "kubernetes_config_map_v1" "cluster_vars" {
  metadata {
    name      = "cluster-vars"
    namespace = var.sync_namespace
    labels    = { "app.kubernetes.io/managed-by" = "castle" }
  }

  data = merge({ cluster_name = var.sync_cluster_name }, var.cluster_vars)
}

# A chart of custom resources only: a plan then needs no CRD in the cluster.
resource "helm_release" "sync" {
  name      = "flux-sync"
  namespace = var.sync_namespace
  chart     = "${path.module}/chart"
  version   = yamldecode(file("${path.module}/chart/Chart.yaml")).version

  wait            = false
  upgrade_install = true

  values = [yamlencode({
    # A changed file of a local chart is no change to Terraform by itself.
    chartDigest = sha256(join("", [for f in fileset("${path.module}/chart", "**") : "${f} ${filesha256("${path.module}/chart/${f}")}"]))

    name           = local.name
    url            = var.git_url
    branch         = var.git_branch
    path           = var.git_path
    secret         = kubernetes_secret_v1.git.metadata[0].name
    substitutes    = var.sync_substitutes
    sourceInterval = var.sync_source_interval
    interval       = var.sync_interval
  })]

  depends_on = [kubernetes_config_map_v1.cluster_vars]
}
