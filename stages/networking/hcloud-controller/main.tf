locals {
  pods4 = one([
    for subnet in var.hcloud_controller_pod_subnets != null ? var.hcloud_controller_pod_subnets : ["10.244.0.0/16"] :
    subnet if !can(regex(":", subnet))
  ])
}

# By the name that the chart reads. HCLOUD_NETWORK takes the network's name, too.
resource "kubernetes_secret_v1" "hcloud" {
  metadata {
    name      = "hcloud"
    namespace = "kube-system"
    labels    = { "app.kubernetes.io/managed-by" = "castle" }
  }

  data = {
    token   = var.hcloud_token
    network = var.hcloud_network_name
  }
}

# It tolerates the taint that it takes off the nodes, and uses the host's network.
resource "helm_release" "controller" {
  name       = "hcloud-cloud-controller-manager"
  namespace  = kubernetes_secret_v1.hcloud.metadata[0].namespace
  repository = var.hcloud_controller_chart_repository
  chart      = "hcloud-cloud-controller-manager"
  version    = var.hcloud_controller_chart_version

  # The gates wait, and wait for more than Helm does. A Helm that gives up leaves
  # a failed release that the state lacks; upgrade_install finds it again.
  wait            = false
  upgrade_install = true

  values = concat(
    [yamlencode({
      # With the network, a node's address is its private one: no other would match that of its kubelet.
      networking = merge({ enabled = true }, local.pods4 == null ? {} : { clusterCIDR = local.pods4 })

      env = {
        HCLOUD_ENDPOINT = { value = var.hcloud_endpoint }

        # The network plugin has a tunnel between the nodes.
        HCLOUD_NETWORK_ROUTES_ENABLED = { value = "false" }

        # What a Service gets without annotations. The firewall lets no load balancer reach a public address.
        HCLOUD_LOAD_BALANCERS_LOCATION       = { value = var.hcloud_location }
        HCLOUD_LOAD_BALANCERS_TYPE           = { value = var.hcloud_load_balancer_type }
        HCLOUD_LOAD_BALANCERS_USE_PRIVATE_IP = { value = "true" }
      }
    })],
    var.hcloud_controller_values,
  )
}
