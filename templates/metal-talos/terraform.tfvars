%{ if secrets == "local" ~}
# The values of ${cluster}. No secret belongs here: they are in secrets.tfvars, which stays out of Git.
%{ endif ~}
%{ if secrets == "vault" ~}
# The values of ${cluster}. No secret belongs here: they are in Vault, in
# ephemeral-castle/${cluster}/${platform} below the KV engine "secret" (vault_kv_mount names another).
%{ endif ~}
%{ if secrets == "infisical" ~}
# The values of ${cluster}. No secret belongs here: they are in Infisical, in the folder
# /ephemeral-castle/${cluster}/${platform}.
%{ endif ~}
# Every variable is explained in the variables.tf of its stage; `castle stage show platform/existing-machines`
# lists those of the machines.

%{ if secrets == "local" ~}
# Without backups (longhorn_backup_target below), there need not be S3 credentials. The ESO_ ones are for
# clusters with External Secrets, the PROXMOX_ ones for those on Proxmox.
local_optional_secrets = [
  "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "ESO_CLIENT_ID", "ESO_CLIENT_SECRET", "GIT_USERNAME",%{ if substr(git_url, 0, 6) == "ssh://" } "GITHUB_TOKEN",%{ endif }
  "PROXMOX_TOKEN_ID", "PROXMOX_TOKEN_SECRET", "SSH_PRIVATE_KEY", "SSH_PUBLIC_KEY",
]
%{ endif ~}
%{ if secrets == "vault" ~}
vault_address = "${vault_address}"
# vault_ca_cert_file = "/etc/ssl/certs/vault.pem" # the authority that signed its certificate, if that is your own

# Without backups (longhorn_backup_target below), there need not be S3 credentials in it, and without Proxmox no token for it.
# The others are for clusters with External Secrets, Tailscale or the landing zone: docs/vault.md of castle.
vault_optional_secrets = [
  "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "ESO_CLIENT_ID", "ESO_CLIENT_SECRET", "GIT_USERNAME",%{ if substr(git_url, 0, 6) == "ssh://" } "GITHUB_TOKEN",%{ endif }
  "PROXMOX_TOKEN_ID", "PROXMOX_TOKEN_SECRET", "SSH_PRIVATE_KEY", "SSH_PUBLIC_KEY",
  "TAILSCALE_OAUTH_CLIENT_ID", "TAILSCALE_OAUTH_CLIENT_SECRET", "TALOS_SECRETBOX_KEY", "VAULT_CA_CERT", "VAULT_READER_TOKEN",
]
%{ endif ~}
%{ if secrets == "infisical" ~}
infisical_host         = "${infisical_host}" # the EU and US clouds are two installations
infisical_project_id   = "${infisical_project_id}"
infisical_project_slug = "${infisical_project_slug}"
infisical_environment  = "${infisical_environment}"

# Without backups (longhorn_backup_target below), the folder need not hold S3 credentials, and without Proxmox no token for it.
infisical_optional_secrets = [
  "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "GIT_USERNAME",%{ if substr(git_url, 0, 6) == "ssh://" } "GITHUB_TOKEN",%{ endif } "PROXMOX_TOKEN_ID", "PROXMOX_TOKEN_SECRET", "SSH_PRIVATE_KEY", "SSH_PUBLIC_KEY",
]
%{ endif ~}

# The network that the machines are in. Their router gives them their addresses.
network = {
  gateway = "${gateway}"
  prefix  = ${split("/", network)[1]}
}

# VIP, addresses and pool are this cluster's alone: not those of another cluster, and the VIP and the pool
# outside of the router's DHCP range.
%{ if upper(vip) == vip ~}
vip = "${vip}"
%{ else ~}
api_endpoint = "${vip}" # a load balancer, which passes port 6443 to that of the control planes
%{ endif ~}

# A machine has its address already, and must have it again after a reset: give it a DHCP reservation.
# What stands on install_disk is lost; longhorn_disk is another one.
nodes = {
%{ for node in nodes ~}
%{ if node.control_plane && workers == 0 ~}
  ${node.name} = { role = "controlplane", address = "${node.address}", install_disk = "${node.install_disk != "" ? node.install_disk : install_disk}", longhorn_disk = "${longhorn_disk}" }
%{ else ~}
%{ if node.control_plane ~}
  ${node.name} = { role = "controlplane", address = "${node.address}", install_disk = "${node.install_disk != "" ? node.install_disk : install_disk}" }
%{ else ~}
  ${node.name} = { role = "worker", address = "${node.address}", install_disk = "${node.install_disk != "" ? node.install_disk : install_disk}", longhorn_disk = "${longhorn_disk}" }
%{ endif ~}
%{ endif ~}
%{ endfor ~}
}
%{ if workers == 0 ~}
allow_scheduling_on_controlplanes = true # there are no workers
%{ endif ~}

# The card that gets the VIP is the one with a cable. With several, choose one:
# talos_uplink = "link.driver == \"igb\""

# What the machines run. A newer castle leaves it as it is; another version here is an upgrade: docs/operations.md of castle.
# renovate: datasource=github-releases depName=siderolabs/talos
talos_version  = "v1.13.0"
talos_contract = "v1.13" # the format of their configurations: a cluster keeps it
# renovate: datasource=github-releases depName=kubernetes/kubernetes extractVersion=^v(?<version>.*)$
kubernetes_version = "1.36.3"

# What many clusters set, too: docs/talos.md of castle.
# talos_extensions = ["siderolabs/iscsi-tools", "siderolabs/util-linux-tools"]
# node_labels      = { worker-01 = { "topology.kubernetes.io/zone" = "rack-1" } }
# node_taints      = { worker-01 = { "nvidia.com/gpu" = "present:NoSchedule" } }
# registry_mirrors = { "docker.io" = { endpoints = ["https://cache.lan/v2/docker.io"], override_path = true } }
# ntp_servers      = ["${gateway}"]

# What Services of type LoadBalancer get.
%{ if cni == "cilium" ~}
cilium_pool_addresses = ${jsonencode(pool_addresses)}

cni = "cilium" # instead of flannel and kube-proxy; a running cluster keeps it
%{ else ~}
metallb_addresses = ${jsonencode(pool_addresses)}
%{ endif ~}

longhorn_replica_count = ${replicas} # one for each machine with a disk for Longhorn, at most three
# longhorn_backup_target = "s3://bucket@region/" # wants the two AWS_ secrets; or "nfs://nas.lan:/volume1/longhorn"

git_url    = "${git_url}"
git_branch = "${git_branch}"
git_path   = "${git_path}"

# What the Git repository's manifests substitute.
cluster_vars = {
  traefik_lb_ip = "${split("-", pool_addresses[0])[0]}"
}
