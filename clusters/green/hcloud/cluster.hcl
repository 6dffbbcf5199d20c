# green: one control plane and two workers in Hetzner Cloud. Only platform and networking differ from blue.
# stages/README.md lists the inputs and outputs of each stage. Values: terraform.tfvars.

stage "infisical" { source = "secrets/infisical" }
stage "keys" { source = "secrets/keys" }

stage "hcloud-image" { source = "platform/hcloud-image" }
stage "machines" { source = "platform/hcloud-machines" }
stage "talos" { source = "platform/talos" }
stage "infisical-access" { source = "platform/infisical-access" }

stage "external-secrets" { source = "engine/external-secrets" }
stage "secret-store" { source = "engine/secret-store" }

stage "hcloud-controller" { source = "networking/hcloud-controller" }

stage "longhorn" { source = "storage/longhorn" }

stage "flux" { source = "gitops/flux" }
stage "sync" { source = "gitops/sync" }
