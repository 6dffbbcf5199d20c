stage {
  summary      = "Creates the machines in Hetzner Cloud"
  ends_cluster = true

  inputs = {
    cluster_name                  = cluster.name
    hcloud_token                  = secrets.hcloud_token
    hcloud_images                 = platform.hcloud_images
    serviceaccount_public_key_pem = secrets.serviceaccount_public_key_pem
  }
}

# The API refuses names that are taken. This preflight says so before anything is made, and finds what a killed
# run has made: the uuid in its label derives from the cluster's key, as in main.tf.
preflight "hcloud_resources" "free" {
  endpoint  = var.hcloud_endpoint
  api_token = var.hcloud_token
  resource  = "hcloud_server.node"
  servers   = { for name, node in var.nodes : name => "${cluster.name}-${name}" }
  types = {
    for name, node in var.nodes : name => format("%s@%s",
      node.server_type != null ? node.server_type : var.hcloud_server_type,
      node.location != null ? node.location : var.hcloud_location,
    )
  }
  balancers = { "hcloud_load_balancer.api" = "${var.hcloud_load_balancer_type}@${var.hcloud_location}" }
  others = {
    "hcloud_network.cluster"              = cluster.name
    "hcloud_firewall.machines"            = cluster.name
    "hcloud_placement_group.controlplane" = cluster.name
    "hcloud_load_balancer.api"            = cluster.name
  }
  parts = {
    "hcloud_network_subnet.machines"          = ["hcloud_network.cluster", var.network.subnet]
    "hcloud_load_balancer_service.kubernetes" = ["hcloud_load_balancer.api", "6443"]
    "hcloud_load_balancer_service.talos"      = ["hcloud_load_balancer.api", "50000"]
  }
}
