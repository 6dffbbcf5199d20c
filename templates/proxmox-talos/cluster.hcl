# ${cluster}: its stages. `castle stage show SOURCE` shows what each
# creates, requires and checks. The values are in terraform.tfvars.

cluster {
  protect = false # true: destroy and recreate refuse
}

%{ if secrets == "local" ~}
stage "local" { source = "secrets/local" } # secrets.tfvars
%{ endif ~}
%{ if secrets == "vault" ~}
stage "vault" { source = "secrets/vault" }
%{ endif ~}
%{ if secrets == "infisical" ~}
stage "infisical" { source = "secrets/infisical" }
%{ endif ~}
stage "keys" { source = "secrets/keys" }

stage "proxmox-image" { source = "platform/proxmox-image" }
stage "machines" { source = "platform/proxmox-machines" }
stage "talos" { source = "platform/talos" }
%{ if cni == "cilium" ~}
stage "cilium" { source = "platform/cilium" }
%{ endif ~}
%{ if secrets == "infisical" ~}
stage "infisical-access" { source = "platform/infisical-access" }

stage "external-secrets" { source = "engine/external-secrets" }
stage "secret-store" { source = "engine/secret-store" }
%{ endif ~}

%{ if cni == "cilium" ~}
stage "cilium-pool" { source = "networking/cilium-pool" }
%{ else ~}
stage "metallb" { source = "networking/metallb" }
stage "address-pool" { source = "networking/address-pool" }
%{ endif ~}

stage "longhorn" { source = "storage/longhorn" }

stage "flux" { source = "gitops/flux" }
stage "sync" { source = "gitops/sync" }
