# The values of ${cluster}.
# Every variable is explained in the variables.tf of its stage; `castle stage show platform/existing-machines`
# lists those of the machines.

# The network that the machines are in. Their router gives them their addresses.
network = {
  gateway = "${gateway}"
  prefix  = ${split("/", network)[1]}
}

# VIP and addresses are this cluster's alone: not those of another cluster, and the VIP outside of the
# router's DHCP range.
%{ if upper(vip) == vip ~}
vip = "${vip}"
%{ else ~}
api_endpoint = "${vip}" # a load balancer, which passes port 6443 to that of the control planes
%{ endif ~}

# A machine has its address already, and must have it again after a reset: give it a DHCP reservation.
# What stands on install_disk is lost.
nodes = {
%{ for node in nodes ~}
  ${node.name} = { role = "${node.control_plane ? "controlplane" : "worker"}", address = "${node.address}", install_disk = "${node.install_disk != "" ? node.install_disk : install_disk}" }
%{ endfor ~}
}
%{ if workers == 0 ~}
allow_scheduling_on_controlplanes = true # there are no workers
%{ endif ~}

# The card that gets the VIP is the one with a cable. With several, choose one:
# talos_uplink = "link.driver == \"igb\""

# What the machines run. A newer castle leaves it as it is; another version here is an upgrade: docs/operations.md of castle.
# renovate: datasource=github-releases depName=siderolabs/talos
talos_version  = "v1.13.0"
talos_contract = "v1.13" # the format of their configurations: a cluster keeps it
# renovate: datasource=github-releases depName=kubernetes/kubernetes extractVersion=^v(?<version>.*)$
kubernetes_version = "1.36.3"

# What many clusters set, too: docs/talos.md of castle.
# talos_extensions = ["siderolabs/iscsi-tools", "siderolabs/util-linux-tools"]
# node_labels      = { worker-01 = { "topology.kubernetes.io/zone" = "rack-1" } }
# node_taints      = { worker-01 = { "nvidia.com/gpu" = "present:NoSchedule" } }
# registry_mirrors = { "docker.io" = { endpoints = ["https://cache.lan/v2/docker.io"], override_path = true } }
# ntp_servers      = ["${gateway}"]
%{ if cni == "cilium" ~}

cni = "cilium" # instead of flannel and kube-proxy; a running cluster keeps it
%{ endif ~}
