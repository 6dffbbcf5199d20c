# everything: one control plane and one worker with each input that the platform has, so that a rehearsal
# proves all of them. It is no cluster to copy: blue and mini are.

stage "infisical" { source = "secrets/infisical" }
stage "keys" { source = "secrets/keys" }

stage "proxmox-image" { source = "platform/proxmox-image" }
stage "machines" { source = "platform/proxmox-machines" }
stage "talos" {
  source = "platform/talos"
  inputs = {
    registry_auths           = secrets.registry_auths
    registry_ca_certificates = { "cache.example.org" = file("cache.pem") }
  }
}
stage "infisical-access" { source = "platform/infisical-access" }
