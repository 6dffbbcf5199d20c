# addresses: one control plane and one worker with IPv4 and IPv6, whose API is behind a load balancer instead
# of a VIP.

stage "infisical" { source = "secrets/infisical" }
stage "keys" { source = "secrets/keys" }

stage "proxmox-image" { source = "platform/proxmox-image" }
stage "machines" { source = "platform/proxmox-machines" }
stage "talos" { source = "platform/talos" }

stage "metallb" { source = "networking/metallb" }
stage "address-pool" { source = "networking/address-pool" }
