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

stage "hcloud-image" { source = "platform/hcloud-image" }
stage "machines" { source = "platform/hcloud-machines" }
stage "talos" { source = "platform/talos" }
%{ if secrets == "infisical" ~}
stage "infisical-access" { source = "platform/infisical-access" }

stage "external-secrets" { source = "engine/external-secrets" }
stage "secret-store" { source = "engine/secret-store" }
%{ endif ~}

stage "hcloud-controller" { source = "networking/hcloud-controller" }

stage "hcloud-csi" { source = "storage/hcloud-csi" } # or storage/longhorn

stage "flux" { source = "gitops/flux" }
stage "sync" { source = "gitops/sync" }
