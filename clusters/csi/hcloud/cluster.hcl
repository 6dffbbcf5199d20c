# csi: one control plane and one worker in Hetzner Cloud, with its volumes instead of Longhorn.
# stages/README.md lists the inputs and outputs of each stage. Values: terraform.tfvars.

stage "infisical" { source = "secrets/infisical" }
stage "keys" { source = "secrets/keys" }

stage "hcloud-image" { source = "platform/hcloud-image" }
stage "machines" { source = "platform/hcloud-machines" }
stage "talos" { source = "platform/talos" }

stage "hcloud-controller" { source = "networking/hcloud-controller" }

stage "hcloud-csi" { source = "storage/hcloud-csi" }
