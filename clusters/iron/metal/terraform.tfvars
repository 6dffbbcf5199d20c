# No secret belongs here: they are in Infisical, in the folder
# /ephemeral-castle/iron/metal. Lines that end in CHANGE are placeholders.

infisical_project_id = "8f3c1d52-6a0e-4b7f-9d21-5e4c7a90b6d3" # CHANGE: Project settings, "Copy project id"

# This cluster has no Proxmox, and makes no backups.
infisical_optional_secrets = ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "GIT_USERNAME", "PROXMOX_TOKEN_ID", "PROXMOX_TOKEN_SECRET", "SSH_PRIVATE_KEY", "SSH_PUBLIC_KEY"]

network = {
  gateway = "192.168.1.1"
  prefix  = 24

  secondary_subnet  = "fd00:192:168:1::/64"
  secondary_gateway = "fd00:192:168:1::1"
}

vip = "192.168.1.120"

# The router has reserved cp-01's address for it. That of worker-01 is in its kernel's arguments.
nodes = {
  cp-01     = { role = "controlplane", address = "192.168.1.121", secondary_address = "fd00:192:168:1::121", install_disk = "/dev/nvme0n1" }
  worker-01 = { role = "worker", address = "192.168.1.122", secondary_address = "fd00:192:168:1::122", dhcp = false, longhorn_disk = "/dev/sdb" }
}

talos_platform = "metal"
talos_uplink   = "link.type == 1 && link.kind == \"\" && link.driver != \"cdc_ether\"" # not the one that leads to the BMC

pod_subnets     = ["10.244.0.0/16", "fd00:10:244::/56"]
service_subnets = ["10.96.0.0/12", "fd00:10:96::/112"]
