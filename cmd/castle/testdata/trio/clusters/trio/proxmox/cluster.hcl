# trio: three control planes and one worker, for what can go wrong with them.

stage "infisical" { source = "secrets/infisical" }
stage "keys" { source = "secrets/keys" }

stage "proxmox-image" { source = "platform/proxmox-image" }
stage "machines" { source = "platform/proxmox-machines" }
stage "talos" { source = "platform/talos" }
stage "infisical-access" { source = "platform/infisical-access" }

stage "external-secrets" { source = "engine/external-secrets" }
stage "secret-store" { source = "engine/secret-store" }

stage "metallb" { source = "networking/metallb" }

stage "longhorn" { source = "storage/longhorn" }

stage "flux" { source = "gitops/flux" }
stage "sync" { source = "gitops/sync" }
