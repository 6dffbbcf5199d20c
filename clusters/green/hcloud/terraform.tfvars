# No secret belongs here: they are in Infisical, in the folder
# /ephemeral-castle/green/hcloud. Lines that end in CHANGE are placeholders.

infisical_project_id   = "8f3c1d52-6a0e-4b7f-9d21-5e4c7a90b6d3" # CHANGE: Project settings, "Copy project id"
infisical_project_slug = "ephemeral-castle"                     # CHANGE: Project settings

# This cluster has no Proxmox and makes no backups. Its folder holds HCLOUD_TOKEN.
infisical_optional_secrets = [
  "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "GIT_USERNAME", "PROXMOX_TOKEN_ID", "PROXMOX_TOKEN_SECRET", "SSH_PRIVATE_KEY", "SSH_PUBLIC_KEY",
]

hcloud_endpoint      = "https://api.hetzner.cloud/v1"
hcloud_location      = "fsn1"
hcloud_server_type   = "cx33"
hcloud_architectures = ["x86"]

# castle runs in this network, or has a tunnel to it.
network = {
  ip_range = "10.10.0.0/16"
  subnet   = "10.10.1.0/24"
  zone     = "eu-central"
}

api_endpoint              = "10.10.1.5" # the load balancer
hcloud_load_balancer_type = "lb11"
hcloud_api_public         = false

nodes = {
  cp-01     = { role = "controlplane", address = "10.10.1.11" }
  worker-01 = { role = "worker", address = "10.10.1.21", server_type = "cx43" }
  worker-02 = { role = "worker", address = "10.10.1.22", server_type = "cx43", location = "nbg1" }
}

# renovate: datasource=github-releases depName=siderolabs/talos
talos_version = "v1.13.0"
# renovate: datasource=github-releases depName=kubernetes/kubernetes extractVersion=^v(?<version>.*)$
kubernetes_version = "1.36.3"

# The snapshot of the servers' disks, and the installer, have the extensions of this schematic.
talos_image_factory = "factory.talos.dev"
talos_schematic_id  = "613e1592b2da41ae5e265e8789429f22e121aab91cb4deb6bc3c0b6262961245"

# The stage hcloud-controller gives nodes their provider id, and Services load balancers.
external_cloud_provider = true

git_url    = "https://github.com/tazzo/tazlab-k8s"
git_branch = "master"
git_path   = "./clusters/tazlab-k8s"

# For the annotation load-balancer.hetzner.cloud/private-ipv4 of Traefik's Service.
cluster_vars = {
  traefik_lb_ip = "10.10.1.200"
}
