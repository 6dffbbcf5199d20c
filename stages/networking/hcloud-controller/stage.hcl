stage {
  summary = "Hetzner Cloud's controller gives nodes their identity, and Services load balancers"

  inputs = {
    hcloud_token                  = secrets.hcloud_token
    hcloud_network_name           = cluster.name
    hcloud_controller_nodes       = platform.node_addresses
    hcloud_controller_pod_subnets = platform.pod_subnets
  }
}

# Where the state was lost and the cluster was not.
adopt "kubernetes_secret_v1.hcloud" {
  id = "kube-system/hcloud"

  exists "kubernetes_object" {
    api_version = "v1"
    kind        = "Secret"
    namespace   = "kube-system"
    name        = "hcloud"
    labels      = { "app.kubernetes.io/managed-by" = "castle" }
  }
}

gate "workload" "controller" {
  kind      = "Deployment"
  namespace = "kube-system"
  name      = "hcloud-cloud-controller-manager"
}

# The controller finds the server of a node by the node's name. A load balancer has no target without the id.
gate "nodes" "initialized" {
  names     = [for name in keys(var.hcloud_controller_nodes) : "${cluster.name}-${name}"]
  untainted = ["node.cloudprovider.kubernetes.io/uninitialized"]
  provider  = "hcloud"
}

# Flux does not wait for this stage to bring the Service, and the stage makes none itself: a load balancer costs by
# the hour.
gate "load_balancer" "ingress" {
  when      = var.hcloud_ingress != null
  namespace = var.hcloud_ingress.namespace
  service   = var.hcloud_ingress.service
  answers   = var.hcloud_ingress.answers
  timeout   = "15m"
}
