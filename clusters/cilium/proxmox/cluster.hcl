# cilium: one control plane and one worker, with Cilium instead of flannel, kube-proxy and MetalLB.
# stages/README.md lists the inputs and outputs of each stage. Values: terraform.tfvars.

stage "infisical" { source = "secrets/infisical" }
stage "keys" { source = "secrets/keys" }

stage "proxmox-image" { source = "platform/proxmox-image" }
stage "machines" { source = "platform/proxmox-machines" }
stage "talos" { source = "platform/talos" }
stage "cilium" { source = "platform/cilium" }

stage "external-secrets" { source = "engine/external-secrets" }
stage "secret-store" { source = "engine/secret-store" }

stage "cilium-pool" {
  source = "networking/cilium-pool"
  inputs = { cilium_bgp_password = secrets.cilium_bgp_password }
}
