# sources: one control plane and one worker whose Flux reads its repository over SSH, and decrypts with SOPS.
# Each machine is in a tailnet, the worker has the address that a DHCP server gives it, and Longhorn's backups
# go to an S3 server of your own. The cluster addresses follows an artifact instead.

# A clone of what git_url names.
gitops { repository = "../fleet" }

stage "infisical" { source = "secrets/infisical" }
stage "keys" { source = "secrets/keys" }

stage "proxmox-image" { source = "platform/proxmox-image" }
stage "machines" { source = "platform/proxmox-machines" }
stage "tailscale" { source = "platform/tailscale" }
stage "talos" {
  source = "platform/talos"
  inputs = { tailscale = platform.tailscale }
}

stage "longhorn" { source = "storage/longhorn" }

stage "flux" { source = "gitops/flux" }
stage "sync" { source = "gitops/sync" }
