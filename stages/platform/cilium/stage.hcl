stage {
  summary = "Installs Cilium, which makes the nodes ready and replaces kube-proxy"

  inputs = {
    cilium_nodes       = platform.node_addresses
    cilium_pod_subnets = platform.pod_subnets
  }
}

# The operator creates them, not Helm: agents wait for them, and so do the pools of addresses.
gate "crd" "kinds" {
  names = [
    "ciliumendpoints.cilium.io",
    "ciliumidentities.cilium.io",
    "ciliuml2announcementpolicies.cilium.io",
    "ciliumloadbalancerippools.cilium.io",
    "ciliumnetworkpolicies.cilium.io",
    "ciliumnodes.cilium.io",
  ]
  timeout = "15m"
}

gate "workload" "operator" {
  kind      = "Deployment"
  namespace = "kube-system"
  name      = "cilium-operator"
  desired   = min(2, length(var.cilium_nodes))
  timeout   = "15m"
}

# One for each machine, control planes too.
gate "workload" "agent" {
  kind      = "DaemonSet"
  namespace = "kube-system"
  name      = "cilium"
  desired   = length(var.cilium_nodes)
  timeout   = "15m"
}

# platform/talos has this gate where Talos installs the network plugin. The taint keeps Pods from a node whose
# agent is not ready: they would get addresses of nobody.
gate "nodes" "ready" {
  names     = [for name in keys(var.cilium_nodes) : "${cluster.name}-${name}"]
  untainted = ["node.cilium.io/agent-not-ready"]
  timeout   = "15m"
}

# CoreDNS is ready only once it has read the API through the Service kubernetes, to which Cilium alone leads.
gate "endpoint_slice" "dns" {
  namespace = "kube-system"
  service   = "kube-dns"
  timeout   = "15m"
}
