# mini: one control plane and one worker on one small Proxmox host.
# stages/README.md lists the inputs and outputs of each stage. Values: terraform.tfvars.

stage "infisical" { source = "secrets/infisical" }
stage "keys" { source = "secrets/keys" }

stage "proxmox-image" { source = "platform/proxmox-image" }
stage "machines" { source = "platform/proxmox-machines" }
stage "talos" { source = "platform/talos" }
stage "infisical-access" { source = "platform/infisical-access" }

stage "external-secrets" { source = "engine/external-secrets" }
stage "secret-store" { source = "engine/secret-store" }

stage "metallb" { source = "networking/metallb" }
stage "address-pool" { source = "networking/address-pool" }

stage "longhorn" { source = "storage/longhorn" }

stage "flux" { source = "gitops/flux" }
stage "sync" { source = "gitops/sync" }
