# keep: what can be lost in a create or destroy that is killed, and nothing that
# only takes time: machines, an image, keys, uploads, namespaces, Helm releases.
stage "infisical" { source = "secrets/infisical" }
stage "keys" { source = "secrets/keys" }

stage "proxmox-image" { source = "platform/proxmox-image" }
stage "machines" { source = "platform/proxmox-machines" }
stage "talos" { source = "platform/talos" }
stage "infisical-access" { source = "platform/infisical-access" }

stage "metallb" { source = "networking/metallb" }
stage "address-pool" { source = "networking/address-pool" }

stage "flux" { source = "gitops/flux" }
stage "sync" { source = "gitops/sync" }
