locals {
  pods  = var.cilium_pod_subnets != null ? var.cilium_pod_subnets : ["10.244.0.0/16"]
  pods4 = var.cilium_pod_cidr != null ? var.cilium_pod_cidr : one([for subnet in local.pods : subnet if !can(regex(":", subnet))])
  pods6 = one([for subnet in local.pods : subnet if can(regex(":", subnet))])
}

# Talos has no CNI of its own here (cni = "cilium"): the release is applied as soon as the API answers, before any
# node is ready. Agents and operator tolerate that, and use the host's network.
resource "helm_release" "cilium" {
  name       = "cilium"
  namespace  = "kube-system" # it exists, and Talos lets privileged Pods run there
  repository = var.cilium_chart_repository
  chart      = "cilium"
  version    = var.cilium_chart_version

  # The gates wait, and wait for more than Helm does. A Helm that gives up leaves
  # a failed release that the state lacks; upgrade_install finds it again.
  wait            = false
  upgrade_install = true

  values = concat(
    [yamlencode({
      ipam                 = { mode = "kubernetes" } # each node's range of Talos' podSubnets
      kubeProxyReplacement = true

      # KubePrism: the Service kubernetes works only once Cilium does.
      k8sServiceHost = "localhost"
      k8sServicePort = 7445

      # Talos mounts the cgroup file system, and lets nobody load kernel modules.
      cgroup = { autoMount = { enabled = false }, hostRoot = "/sys/fs/cgroup" }
      securityContext = {
        capabilities = {
          ciliumAgent = [
            "CHOWN", "KILL", "NET_ADMIN", "NET_RAW", "IPC_LOCK", "SYS_ADMIN", "SYS_RESOURCE", "DAC_OVERRIDE", "FOWNER",
            "SETGID", "SETUID",
          ]
          cleanCiliumState = ["NET_ADMIN", "SYS_ADMIN", "SYS_RESOURCE"]
        }
      }

      # Talos answers DNS for Pods on the host, which eBPF host routing would bypass.
      bpf = { hostLegacyRouting = true }

      # Two operators never share a node. A changed configuration takes effect only in new Pods.
      operator          = { replicas = min(2, length(var.cilium_nodes)), rollOutPods = true }
      rollOutCiliumPods = true
      hubble            = { enabled = false }

      # For networking/cilium-pool. Each announced Service has a lease that its holder renews.
      l2announcements    = { enabled = true }
      bgpControlPlane    = { enabled = var.cilium_bgp != null }
      k8sClientRateLimit = { qps = 20, burst = 40 }
    })],
    [yamlencode(var.cilium_routing_mode == "tunnel" ? { routingMode = "tunnel" } : {
      routingMode                                                   = "native"
      autoDirectNodeRoutes                                          = true
      ipv4NativeRoutingCIDR                                         = local.pods4
    })],
    local.pods6 == null ? [] : [yamlencode(merge(
      { ipv6 = { enabled = true }, ipv4 = { enabled = local.pods4 != null } },
      var.cilium_routing_mode == "tunnel" ? {} : { ipv6NativeRoutingCIDR = local.pods6 },
    ))],
    var.cilium_values,
  )
}
