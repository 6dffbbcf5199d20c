# No secret belongs here: they are in Infisical, in the folder
# /ephemeral-castle/handover/proxmox. Lines that end in CHANGE are placeholders.

infisical_project_id = "8f3c1d52-6a0e-4b7f-9d21-5e4c7a90b6d3" # CHANGE: Project settings, "Copy project id"

# This cluster makes no backups, so its folder need not hold S3 credentials.
infisical_optional_secrets = ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "GIT_USERNAME", "SSH_PRIVATE_KEY", "SSH_PUBLIC_KEY"]

proxmox_endpoint  = "https://192.168.1.10:8006/" # CHANGE: the host's address
proxmox_node_name = "proxmox"                    # its name, as the Proxmox tree shows it
proxmox_pool      = "handover"                   # must exist: pveum pool add handover

network = {
  gateway = "192.168.1.1"
  dns     = ["192.168.1.1"]
}

# Beside blue and mini: ids, addresses and pool are its own.
vip         = "192.168.1.200"
vm_id_range = { first = 461, last = 464 }

nodes = {
  cp-01     = { role = "controlplane", vm_id = 461, address = "192.168.1.201", cores = 2, memory = 4096 }
  worker-01 = { role = "worker", vm_id = 462, address = "192.168.1.202", cores = 4, memory = 16384, longhorn_disk = 80 }
}

git_url  = "https://github.com/tazzo/tazlab-fleet" # CHANGE: where ../fleet is pushed to
git_path = "./cluster"

# The variables that Flux substitutes in ../fleet. castle does not check this pool, as its own
# stages would: keep it apart from the VIP and the nodes.
cluster_vars = {
  metallb_addresses      = "192.168.1.204-192.168.1.207"
  infisical_project_slug = "ephemeral-castle" # CHANGE: Project settings
}
