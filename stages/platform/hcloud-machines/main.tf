locals {
  controlplanes = [for name, node in var.nodes : name if node.role == "controlplane"]

  # The identity of each resource before it exists: castle finds it by its name, and proves it by this label.
  labels = {
    for name in concat(
      [for type in ["network", "firewall", "placement_group", "load_balancer"] : "hcloud_${type}/${var.cluster_name}"],
      [for name in keys(var.nodes) : "hcloud_server/${var.cluster_name}-${name}"],
      ) : name => {
      castle_cluster = var.cluster_name
      castle_uuid    = uuidv5("oid", "${var.serviceaccount_public_key_pem}/${name}")
    }
  }
}

resource "hcloud_network" "cluster" {
  name     = var.cluster_name
  ip_range = var.network.ip_range
  labels   = local.labels["hcloud_network/${var.cluster_name}"]
}

resource "hcloud_network_subnet" "machines" {
  network_id   = hcloud_network.cluster.id
  type         = "cloud"
  network_zone = var.network.zone
  ip_range     = var.network.subnet
}

# It filters what comes from the internet, and lets nothing in but ICMP. It does not filter the private network.
resource "hcloud_firewall" "machines" {
  name   = var.cluster_name
  labels = local.labels["hcloud_firewall/${var.cluster_name}"]

  rule {
    direction  = "in"
    protocol   = "icmp"
    source_ips = ["0.0.0.0/0", "::/0"]
  }
}

# Control planes run on different hosts. A group has at most ten servers.
resource "hcloud_placement_group" "controlplane" {
  name   = var.cluster_name
  type   = "spread"
  labels = local.labels["hcloud_placement_group/${var.cluster_name}"]
}

# castle's preflight knows these by their address: node["<name>"].
resource "hcloud_server" "node" {
  for_each = var.nodes

  name               = "${var.cluster_name}-${each.key}"
  server_type        = coalesce(each.value.server_type, var.hcloud_server_type)
  location           = coalesce(each.value.location, var.hcloud_location)
  image              = var.hcloud_images[startswith(coalesce(each.value.server_type, var.hcloud_server_type), "cax") ? "arm" : "x86"]
  labels             = merge(local.labels["hcloud_server/${var.cluster_name}-${each.key}"], { castle_role = each.value.role })
  firewall_ids       = [hcloud_firewall.machines.id]
  placement_group_id = each.value.role == "controlplane" ? hcloud_placement_group.controlplane.id : null

  # A disk that has grown with its server's type never shrinks, so there would be no way back.
  keep_disk = true

  # The address is the machine's way out, and ends with it.
  public_net {
    ipv4_enabled = true
    ipv6_enabled = false
  }

  lifecycle {
    # The image is the disk's origin, not its content: Talos upgrades itself in place. The provider does not read
    # public_net of a server that was imported, and would switch it off to set it.
    ignore_changes = [image, public_net, ssh_keys, user_data]
  }
}

# Talos finds its private address by DHCP. As a block of the server, the network would be attached again whenever
# a server is replaced while the address of the old one is still taken.
resource "hcloud_server_network" "node" {
  for_each = var.nodes

  server_id = hcloud_server.node[each.key].id
  subnet_id = hcloud_network_subnet.machines.id
  ip        = each.value.address
  alias_ips = []
}

# The endpoint of the Kubernetes API and of Talos', in front of the control planes.
resource "hcloud_load_balancer" "api" {
  name               = var.cluster_name
  load_balancer_type = var.hcloud_load_balancer_type
  location           = var.hcloud_location
  labels             = local.labels["hcloud_load_balancer/${var.cluster_name}"]
}

resource "hcloud_load_balancer_network" "api" {
  load_balancer_id        = hcloud_load_balancer.api.id
  subnet_id               = hcloud_network_subnet.machines.id
  ip                      = var.api_endpoint
  enable_public_interface = var.hcloud_api_public
}

# Without keys: castle treats a key in this stage as a machine's.
resource "hcloud_load_balancer_service" "kubernetes" {
  load_balancer_id = hcloud_load_balancer.api.id
  protocol         = "tcp"
  listen_port      = 6443
  destination_port = 6443
}

resource "hcloud_load_balancer_service" "talos" {
  load_balancer_id = hcloud_load_balancer.api.id
  protocol         = "tcp"
  listen_port      = 50000
  destination_port = 50000
}

resource "hcloud_load_balancer_target" "controlplane" {
  for_each = toset(local.controlplanes)

  type             = "server"
  load_balancer_id = hcloud_load_balancer.api.id
  server_id        = hcloud_server.node[each.key].id
  use_private_ip   = true

  depends_on = [hcloud_load_balancer_network.api, hcloud_server_network.node]
}
