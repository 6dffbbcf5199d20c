# No secret belongs here: they are in Infisical, in the folder
# /ephemeral-castle/addresses/proxmox. Lines that end in CHANGE are placeholders.

infisical_project_id = "8f3c1d52-6a0e-4b7f-9d21-5e4c7a90b6d3" # CHANGE: Project settings, "Copy project id"

# This cluster makes no backups, so its folder need not hold S3 credentials.
infisical_optional_secrets = ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "GIT_USERNAME", "SSH_PRIVATE_KEY", "SSH_PUBLIC_KEY"]

proxmox_endpoint  = "https://192.168.1.10:8006/" # CHANGE: the host's address
proxmox_node_name = "proxmox"                    # its name, as the Proxmox tree shows it
proxmox_pool      = "addresses"                  # must exist: pveum pool add addresses

network = {
  gateway = "192.168.1.1"
  dns     = ["192.168.1.1"]

  # Each machine has an address of IPv6, too.
  secondary_subnet  = "fd00:192:168:1::/64"
  secondary_gateway = "fd00:192:168:1::1"
}

# Pods and Services have one of each family. The first is the one of the machines' address.
pod_subnets     = ["10.244.0.0/16", "fd00:10:244::/56"]
service_subnets = ["10.96.0.0/12", "fd00:10:96::/112"]

# A load balancer instead of a VIP: it passes port 443 to port 6443 of the control planes.
api_endpoint = "api.addresses.example.org"
api_port     = 443

# Beside the other clusters: ids, addresses and pool are its own.
vm_id_range = { first = 511, last = 514 }

nodes = {
  cp-01     = { role = "controlplane", vm_id = 511, address = "192.168.1.141", secondary_address = "fd00:192:168:1::141", cores = 2, memory = 4096 }
  worker-01 = { role = "worker", vm_id = 512, address = "192.168.1.142", secondary_address = "fd00:192:168:1::142", cores = 2, memory = 4096 }
}

metallb_addresses = ["192.168.1.144-192.168.1.147", "fd00:192:168:1::200/124"]

# Flux follows the newest artifact of a range, and needs REGISTRY_AUTHS for it.
git_url  = "oci://registry.example.org:5000/me/addresses" # CHANGE: where flux push artifact has put it
git_path = "./cluster"

oci_semver   = ">=1.0.0 <2.0.0"
oci_tag      = "main" # the range goes before it
oci_insecure = false
