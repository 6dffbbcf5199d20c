# addresses: one control plane and one worker with IPv4 and IPv6, whose API is behind a load balancer instead
# of a VIP.

# The folder that the artifact is made of.
gitops { repository = "../fleet" }

stage "infisical" { source = "secrets/infisical" }
stage "keys" { source = "secrets/keys" }

stage "proxmox-image" { source = "platform/proxmox-image" }
stage "machines" { source = "platform/proxmox-machines" }
stage "talos" { source = "platform/talos" }

stage "metallb" { source = "networking/metallb" }
stage "address-pool" { source = "networking/address-pool" }

# Flux follows an artifact, of a registry with a certificate of its owner's authority. Nothing in it needs a
# volume: a cluster without a storage layer has no gates of one.
stage "flux" { source = "gitops/flux" }
stage "sync" {
  source = "gitops/sync"
  inputs = { sync_ca_certificate = file("registry.pem") }
}
