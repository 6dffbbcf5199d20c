# golden: machines that are cloned from a template with Talos, on three Proxmox nodes. They are highly available on
# shared storage, and the control planes are kept apart. One worker is neither.

stage "infisical" { source = "secrets/infisical" }
stage "keys" { source = "secrets/keys" }

stage "proxmox-image" { source = "platform/proxmox-image" }
stage "machines" { source = "platform/proxmox-machines" }
stage "talos" { source = "platform/talos" }
