# No secret belongs here: they are in Infisical, in the folder
# /ephemeral-castle/cilium/proxmox. Lines that end in CHANGE are placeholders.

infisical_project_id   = "8f3c1d52-6a0e-4b7f-9d21-5e4c7a90b6d3" # CHANGE: Project settings, "Copy project id"
infisical_project_slug = "ephemeral-castle"                     # CHANGE: Project settings

# This cluster makes no backups, so its folder need not hold S3 credentials.
infisical_optional_secrets = ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "GIT_USERNAME", "SSH_PRIVATE_KEY", "SSH_PUBLIC_KEY"]

proxmox_endpoint  = "https://192.168.1.10:8006/" # CHANGE: the host's address
proxmox_node_name = "proxmox"                    # its name, as the Proxmox tree shows it
proxmox_pool      = "cilium"                     # must exist: pveum pool add cilium

network = {
  gateway = "192.168.1.1"
  dns     = ["192.168.1.1"]
}

# Beside the other clusters: ids, addresses and pool are its own.
vip         = "192.168.1.160"
vm_id_range = { first = 481, last = 484 }

nodes = {
  cp-01     = { role = "controlplane", vm_id = 481, address = "192.168.1.161", cores = 2, memory = 4096 }
  worker-01 = { role = "worker", vm_id = 482, address = "192.168.1.162", cores = 4, memory = 8192 }
}

talos_schematic_id = "613e1592b2da41ae5e265e8789429f22e121aab91cb4deb6bc3c0b6262961245" # others set talos_extensions

# Talos installs neither flannel nor kube-proxy. The stage cilium brings Cilium, which replaces both.
cni                     = "cilium"
cilium_chart_repository = "https://helm.cilium.io"
cilium_chart_version    = "1.18.6"
cilium_routing_mode     = "native" # all nodes are in one network
cilium_pod_cidr         = "10.244.0.0/16"
cilium_values           = ["hubble: { enabled: false }"]

# The load balancer is Cilium, too.
cilium_pool_addresses = ["192.168.1.164-192.168.1.167", "192.168.1.168/30"]

# The router learns them by BGP, and expects a session with each node. Without this value, nodes announce them on layer 2.
cilium_bgp = { local_asn = 64512, peers = { router = { address = "192.168.1.1", asn = 64513 } } }
