locals {
  # Flux's own bootstrap gives all of them this name, and repositories rely on it.
  name = "flux-system"

  oci = startswith(var.git_url, "oci://")
  ssh = startswith(var.git_url, "ssh://")

  # Flux gets the credentials of this registry alone.
  registry = split("/", trimprefix(var.git_url, "oci://"))[0]
  auths = {
    for at, auth in try(jsondecode(var.oci_auths).auths, {}) : at => auth
    if split("/", trimprefix(trimprefix(at, "https://"), "http://"))[0] == local.registry
  }

  # The most exact one wins, as Flux has it.
  oci_ref = { for name, value in { digest = var.oci_digest, semver = var.oci_semver, tag = var.oci_tag } : name => value if value != null }
}

resource "kubernetes_secret_v1" "git" {
  metadata {
    name      = local.name
    namespace = var.sync_namespace
    labels    = { "app.kubernetes.io/managed-by" = "castle" }
  }

  type = local.oci ? "kubernetes.io/dockerconfigjson" : "Opaque"

  data = local.oci ? {
    ".dockerconfigjson" = jsonencode({ auths = local.auths })
    } : local.ssh ? {
    identity    = var.git_ssh_private_key
    known_hosts = var.git_ssh_known_hosts
    } : merge(
    { username = var.git_username, password = var.git_token },
    var.sync_ca_certificate == null ? {} : { "ca.crt" = var.sync_ca_certificate },
  )

  lifecycle {
    precondition {
      condition     = !local.ssh || (var.git_ssh_private_key != null && var.git_ssh_known_hosts != null)
      error_message = "git_url is an ssh:// address, and the secrets layer lacks the deploy key or the server's keys (GIT_SSH_PRIVATE_KEY, GIT_SSH_KNOWN_HOSTS)."
    }
    precondition {
      condition     = local.oci || local.ssh || var.git_token != null
      error_message = "The secrets layer has no token for git_url (GITHUB_TOKEN)."
    }
  }
}

# What SOPS has encrypted in the repository is of no use without it.
resource "kubernetes_secret_v1" "sops" {
  count = var.sync_sops_age ? 1 : 0

  metadata {
    name      = "sops-age"
    namespace = var.sync_namespace
    labels    = { "app.kubernetes.io/managed-by" = "castle" }
  }

  # Flux knows keys of age by this suffix.
  data = { "age.agekey" = var.sops_age_key }

  lifecycle {
    precondition {
      condition     = var.sops_age_key != null
      error_message = "sync_sops_age is true, and the secrets layer lacks the age key with which Flux decrypts (SOPS_AGE_KEY)."
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
    kind           = local.oci ? "OCIRepository" : "GitRepository"
    url            = var.git_url
    ref            = local.oci ? local.oci_ref : { branch = var.git_branch }
    insecure       = local.oci && var.oci_insecure
    certificate    = local.oci && var.sync_ca_certificate != null ? var.sync_ca_certificate : ""
    path           = var.git_path
    secret         = kubernetes_secret_v1.git.metadata[0].name
    keys           = join("", kubernetes_secret_v1.sops[*].metadata[0].name)
    substitutes    = var.sync_substitutes
    sourceInterval = var.sync_source_interval
    interval       = var.sync_interval
  })]

  depends_on = [kubernetes_config_map_v1.cluster_vars]
}
