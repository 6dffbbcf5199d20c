locals {
  ours = { "app.kubernetes.io/managed-by" = "castle" }

  wanted = [
    var.bootstrap_database == null ? null : var.bootstrap_database.namespace,
    var.bootstrap_tailscale_namespace,
    var.bootstrap_vault == null ? null : var.bootstrap_vault.namespace,
  ]

  namespaces = toset([for name in local.wanted : name if name != null && !contains(var.bootstrap_foreign_namespaces, coalesce(name, "-"))])
}

# A Secret needs its namespace before Flux runs, so this stage creates it, and the repository of
# Flux omits it.
resource "kubernetes_namespace_v1" "wanted" {
  for_each = local.namespaces

  metadata {
    name   = each.key
    labels = local.ours
  }
}

# PGO adopts a user's Secret that is there before the cluster: it keeps the
# password, and adds verifier, addresses and itself as the owner.
resource "kubernetes_secret_v1" "database" {
  for_each = var.bootstrap_database == null ? [] : setunion(var.database_users, [for user in var.database_users : "${user}-alt"])

  metadata {
    name      = "${var.bootstrap_database.name}-pguser-${each.key}"
    namespace = var.bootstrap_database.namespace

    labels = merge(local.ours, {
      "postgres-operator.crunchydata.com/cluster" = var.bootstrap_database.name
      "postgres-operator.crunchydata.com/pguser"  = each.key
      "postgres-operator.crunchydata.com/role"    = "pguser"
    })
  }

  data = { password = var.database_passwords[each.key] }

  lifecycle {
    ignore_changes = all
  }

  depends_on = [kubernetes_namespace_v1.wanted]
}

# pgBackRest reads its account there, to archive and to restore.
resource "kubernetes_secret_v1" "s3" {
  count = try(var.bootstrap_database.s3, false) ? 1 : 0

  metadata {
    name      = "${var.bootstrap_database.name}-s3"
    namespace = var.bootstrap_database.namespace
    labels    = local.ours
  }

  data = {
    "s3.conf" = <<-EOT
      [global]
      repo1-s3-key=${coalesce(var.s3_access_key_id, "-")}
      repo1-s3-key-secret=${coalesce(var.s3_secret_access_key, "-")}
    EOT
  }

  lifecycle {
    precondition {
      condition     = var.s3_access_key_id != null && var.s3_secret_access_key != null
      error_message = "bootstrap_database has s3 = true, and the vault has no AWS_ACCESS_KEY_ID or no AWS_SECRET_ACCESS_KEY."
    }
  }

  depends_on = [kubernetes_namespace_v1.wanted]
}

# The operator's chart finds it by this name.
resource "kubernetes_secret_v1" "tailscale" {
  count = var.bootstrap_tailscale_namespace == null ? 0 : 1

  metadata {
    name      = "operator-oauth"
    namespace = var.bootstrap_tailscale_namespace
    labels    = local.ours
  }

  data = {
    client_id     = var.tailscale_oauth_client_id
    client_secret = var.tailscale_oauth_client_secret
  }

  lifecycle {
    precondition {
      condition     = var.tailscale_oauth_client_id != null && var.tailscale_oauth_client_secret != null
      error_message = "bootstrap_tailscale_namespace is set, and the vault has no TAILSCALE_OAUTH_CLIENT_ID or no TAILSCALE_OAUTH_CLIENT_SECRET."
    }
  }

  depends_on = [kubernetes_namespace_v1.wanted]
}

resource "kubernetes_secret_v1" "vault_ca" {
  count = var.bootstrap_vault == null ? 0 : 1

  metadata {
    name      = var.bootstrap_vault.ca_secret_name
    namespace = var.bootstrap_vault.namespace
    labels    = local.ours
  }

  data = { "ca.crt" = var.vault_ca_cert }

  lifecycle {
    precondition {
      condition     = var.vault_ca_cert != null
      error_message = "bootstrap_vault is set, and the vault has no VAULT_CA_CERT."
    }
  }

  depends_on = [kubernetes_namespace_v1.wanted]
}

resource "kubernetes_secret_v1" "vault_token" {
  count = var.bootstrap_vault == null ? 0 : 1

  metadata {
    name      = var.bootstrap_vault.token_secret_name
    namespace = var.bootstrap_vault.namespace
    labels    = local.ours
  }

  data = { token = var.vault_reader_token }

  lifecycle {
    precondition {
      condition     = var.vault_reader_token != null
      error_message = "bootstrap_vault is set, and the vault has no VAULT_READER_TOKEN."
    }
  }

  depends_on = [kubernetes_namespace_v1.wanted]
}
