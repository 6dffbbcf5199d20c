# ${cluster}: Kubernetes and nothing in it. `castle stage list` lists what else castle has, and
# `castle new --template metal-talos` shows a whole cluster. The values are in terraform.tfvars.

cluster {
  protect = false # true: destroy and recreate refuse
}

stage "keys" { source = "secrets/keys" }

stage "machines" { source = "platform/existing-machines" }
stage "talos" { source = "platform/talos" }
%{ if cni == "cilium" ~}
stage "cilium" { source = "platform/cilium" }
%{ endif ~}
