# No secret belongs here: they are in Infisical, in the folder
# /ephemeral-castle/blue/proxmox. Lines that end in CHANGE are placeholders.

infisical_project_id   = "8f3c1d52-6a0e-4b7f-9d21-5e4c7a90b6d3" # CHANGE: Project settings, "Copy project id"
infisical_project_slug = "ephemeral-castle"                     # CHANGE: Project settings
infisical_environment  = "prod"

proxmox_endpoint  = "https://192.168.1.10:8006/" # CHANGE: the host's address
proxmox_node_name = "proxmox"                    # its name, as the Proxmox tree shows it
proxmox_pool      = "blue"                       # must exist: pveum pool add blue
# A new host signs its own certificate: copy /etc/pve/pve-root-ca.pem from it, name the file here and let
# SSL_CERT_FILE name it (with the system's CAs) for the Terraform provider. proxmox_insecure = true verifies nothing.
# proxmox_ca_file = "/etc/ssl/certs/proxmox.pem"

proxmox_image_datastore = "local"     # its content types must include import
proxmox_disk_datastore  = "local-lvm" # the machines' disks

network = {
  gateway = "192.168.1.1"
  prefix  = 24
  bridge  = "vmbr0"
  dns     = ["192.168.1.1"]
}

vip         = "192.168.1.210"
vm_id_range = { first = 421, last = 432 }

nodes = {
  cp-01 = { role = "controlplane", vm_id = 421, address = "192.168.1.211", cores = 2, memory = 4096 }
  cp-02 = { role = "controlplane", vm_id = 422, address = "192.168.1.212", cores = 2, memory = 4096 }
  cp-03 = { role = "controlplane", vm_id = 423, address = "192.168.1.213", cores = 2, memory = 4096 }

  worker-01 = { role = "worker", vm_id = 424, address = "192.168.1.214", cores = 4, memory = 8192, longhorn_disk = 40 }
  worker-02 = { role = "worker", vm_id = 425, address = "192.168.1.215", cores = 4, memory = 8192, longhorn_disk = 40 }
}

# renovate: datasource=github-releases depName=siderolabs/talos
talos_version = "v1.13.0"
# renovate: datasource=github-releases depName=kubernetes/kubernetes extractVersion=^v(?<version>.*)$
kubernetes_version = "1.36.3"

# Outside of the router's DHCP range, and without .250.
metallb_addresses = ["192.168.1.240-192.168.1.249"]

longhorn_replica_count = 2 # one for each worker
longhorn_backup_target = "s3://tazlab-longhorn@eu-central-1/"

git_url    = "https://github.com/tazzo/tazlab-k8s"
git_branch = "master"
git_path   = "./clusters/tazlab-k8s"

# The variables that Flux substitutes in the repository's manifests.
cluster_vars = {
  traefik_lb_ip = "192.168.1.240"
}
