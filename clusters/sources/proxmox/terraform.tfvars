# No secret belongs here: they are in Infisical, in the folder
# /ephemeral-castle/sources/proxmox. Lines that end in CHANGE are placeholders.

infisical_project_id = "8f3c1d52-6a0e-4b7f-9d21-5e4c7a90b6d3" # CHANGE: Project settings, "Copy project id"

# Flux reads its repository with GIT_SSH_PRIVATE_KEY, and decrypts with SOPS_AGE_KEY.
infisical_optional_secrets = ["GITHUB_TOKEN", "GIT_USERNAME", "SSH_PRIVATE_KEY", "SSH_PUBLIC_KEY"]

proxmox_endpoint  = "https://192.168.1.10:8006/" # CHANGE: the host's address
proxmox_node_name = "proxmox"                    # its name, as the Proxmox tree shows it
proxmox_pool      = "sources"                    # must exist: pveum pool add sources

network = {
  gateway = "192.168.1.1"
  dns     = ["192.168.1.1"]
}

# Beside the other clusters: ids and addresses are its own.
vip         = "192.168.1.150"
vm_id_range = { first = 531, last = 534 }

nodes = {
  cp-01     = { role = "controlplane", vm_id = 531, address = "192.168.1.151", cores = 2, memory = 4096 }
  worker-01 = { role = "worker", vm_id = 532, cores = 4, memory = 8192, longhorn_disk = 40 } # its address is a DHCP server's
}

# Each machine joins a tailnet, with a key for it alone. castle learns the address of worker-01 from its guest agent.
talos_extensions     = ["siderolabs/iscsi-tools", "siderolabs/util-linux-tools", "siderolabs/tailscale", "siderolabs/qemu-guest-agent"]
tailscale_tags       = ["tag:node"] # CHANGE: a tag that the OAuth client has
tailscale_key_expiry = 1800
tailscale_api        = "https://api.tailscale.com"
tailscale_extra_args = ["--accept-routes"]

longhorn_namespace                    = "longhorn-system"
longhorn_chart_repository             = "https://charts.longhorn.io"
longhorn_chart_version                = "1.12.1"
longhorn_data_path                    = "/var/lib/longhorn"
longhorn_replica_count                = 1
longhorn_over_provisioning_percentage = 150
longhorn_backup_target                = "s3://sources@us-east-1/longhorn/"
longhorn_s3_endpoint                  = "https://minio.example.org:9000"     # CHANGE: your server
longhorn_s3_ca_file                   = "/etc/ssl/certs/ca-certificates.crt" # CHANGE: your authority's certificate
longhorn_values                       = ["defaultSettings: { createDefaultDiskLabeledNodes: false }"]

flux_namespace        = "flux-system"
flux_chart_repository = "https://fluxcd-community.github.io/helm-charts"
flux_chart_version    = "2.18.3"
flux_image_automation = false
flux_values           = ["logLevel: info"]

git_url    = "ssh://git@git.example.org:2222/me/sources" # CHANGE: where ../fleet is pushed to
git_branch = "main"
git_path   = "./cluster"

sync_sops_age        = true
sync_substitutes     = true
sync_source_interval = "1m"
sync_interval        = "10m"

cluster_vars = { domain = "example.org" }
