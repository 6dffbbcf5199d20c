# tazlab: the cluster is recreated, its Vault stays. castle configures Vault for the
# cluster before the cluster exists, then creates the cluster. Flux installs External
# Secrets and PostgreSQL, from the repository in ../fleet.
# docs/vault.md describes the Vault, its tokens and its policies.

# A clone of what git_url names.
gitops { repository = "../fleet" }

stage "vault" { source = "secrets/vault" }
stage "keys" { source = "secrets/keys" }

# These stages outlive the cluster: `castle destroy` keeps them unless you pass --all.
stage "vault-jwt" { source = "secrets/vault-jwt" }
stage "vault-database" { source = "secrets/vault-database" }

stage "proxmox-image" { source = "platform/proxmox-image" }
stage "machines" { source = "platform/proxmox-machines" }
stage "talos" { source = "platform/talos" }

# External Secrets and PGO need these secrets when they start.
stage "bootstrap-secrets" { source = "engine/bootstrap-secrets" }

stage "metallb" { source = "networking/metallb" }
stage "address-pool" { source = "networking/address-pool" }

stage "longhorn" { source = "storage/longhorn" }

stage "flux" { source = "gitops/flux" }

# The variables that Flux substitutes in ../fleet. Two of them, the paths, are known only once Vault
# is configured. Flux therefore starts after Vault.
stage "sync" {
  source = "gitops/sync"

  # The database outlives the cluster. castle saves it before a destroy, and tells Flux whether the
  # next one begins empty or with the last save. docs/data.md explains it.
  survives "postgres" "database" {
    namespace = "tazlab-db"
    cluster   = "tazlab-db"
    address   = "192.168.1.184:5432"
    database  = "tazlab"
    tables    = ["public.notes"]
    rpo       = "24h"

    endpoint   = "s3.example.org" # CHANGE: as in ../fleet/database
    region     = "eu-south-1"
    bucket     = "tazlab"
    path       = "/database"
    access_key = secrets.s3_access_key_id
    secret_key = secrets.s3_secret_access_key
  }

  # So do the volumes of the claims in this namespace. castle restores them before Flux claims others.
  survives "longhorn" "media" {
    namespace = "media"
    rpo       = "24h"

    endpoint   = "s3.example.org" # CHANGE: as longhorn_s3_endpoint in terraform.tfvars
    region     = "eu-south-1"
    bucket     = "tazlab"
    path       = "/longhorn"
    access_key = secrets.s3_access_key_id
    secret_key = secrets.s3_secret_access_key
  }

  inputs = {
    sync_substitutes = true # the path of Kustomization database has a variable

    cluster_vars = {
      database_birth   = survives.database.birth
      database_path    = survives.database.path
      database_from    = survives.database.from
      database_options = survives.database.options

      vault_address       = "https://vault.example.org:8200" # CHANGE: as in terraform.tfvars
      vault_jwt_path      = secrets.vault_jwt_path
      vault_database_path = secrets.vault_database_path
      database_address    = "192.168.1.184" # vault_database_host, one of metallb_addresses
    }
  }
}

# Flux's:

stage "external-secrets" {
  source   = "engine/external-secrets"
  enabled  = false
  asked_by = "sync"
}

stage "secret-store" {
  source   = "engine/secret-store"
  enabled  = false
  asked_by = "sync"
  inputs   = { secret_store_name = "vault" }
}
