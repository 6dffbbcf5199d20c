# handover: castle creates the machines, Kubernetes and Flux. Flux owns External Secrets,
# MetalLB and Longhorn, from the repository in ../fleet. The stage sync checks their gates,
# so that a create ends when they are ready.
# stages/README.md, "Who owns what", lists the objects that change owners with them.

# A clone of what git_url names.
gitops { repository = "../fleet" }

stage "infisical" { source = "secrets/infisical" }
stage "keys" { source = "secrets/keys" }

stage "proxmox-image" { source = "platform/proxmox-image" }
stage "machines" { source = "platform/proxmox-machines" }
stage "talos" { source = "platform/talos" }
stage "infisical-access" { source = "platform/infisical-access" }

# The one secret that External Secrets cannot fetch itself is castle's.
stage "identity" { source = "engine/infisical-identity" }

stage "flux" { source = "gitops/flux" }
stage "sync" { source = "gitops/sync" }

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
}

stage "metallb" {
  source   = "networking/metallb"
  enabled  = false
  asked_by = "sync"
}

stage "address-pool" {
  source   = "networking/address-pool"
  enabled  = false
  asked_by = "sync"
  inputs   = { address_pool_namespace = "metallb-system" }
}

stage "longhorn" {
  source   = "storage/longhorn"
  enabled  = false
  asked_by = "sync"
}
