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
# Every variable is explained in the variables.tf of its stage; `castle stage show platform/proxmox-machines`
# lists those of the machines.

%{ if secrets == "local" ~}
# Without backups (longhorn_backup_target below), there need not be S3 credentials. The ESO_ ones are for
# clusters with External Secrets.
local_optional_secrets = [
  "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "ESO_CLIENT_ID", "ESO_CLIENT_SECRET", "GIT_USERNAME",%{ if substr(git_url, 0, 6) == "ssh://" } "GITHUB_TOKEN",%{ endif } "SSH_PRIVATE_KEY", "SSH_PUBLIC_KEY",
]
%{ endif ~}
%{ if secrets == "vault" ~}
vault_address = "${vault_address}"
# vault_ca_cert_file = "/etc/ssl/certs/vault.pem" # the authority that signed its certificate, if that is your own

# Without backups (longhorn_backup_target below), there need not be S3 credentials in it. The others are for
# clusters with External Secrets, Tailscale or the landing zone: docs/vault.md of castle.
vault_optional_secrets = [
  "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "ESO_CLIENT_ID", "ESO_CLIENT_SECRET", "GIT_USERNAME",%{ if substr(git_url, 0, 6) == "ssh://" } "GITHUB_TOKEN",%{ endif } "SSH_PRIVATE_KEY", "SSH_PUBLIC_KEY",
  "TAILSCALE_OAUTH_CLIENT_ID", "TAILSCALE_OAUTH_CLIENT_SECRET", "TALOS_SECRETBOX_KEY", "VAULT_CA_CERT", "VAULT_READER_TOKEN",
]
%{ endif ~}
%{ if secrets == "infisical" ~}
infisical_host         = "${infisical_host}" # the EU and US clouds are two installations
infisical_project_id   = "${infisical_project_id}"
infisical_project_slug = "${infisical_project_slug}"
infisical_environment  = "${infisical_environment}"

# Without backups (longhorn_backup_target below), the folder need not hold S3 credentials.
infisical_optional_secrets = ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "GIT_USERNAME",%{ if substr(git_url, 0, 6) == "ssh://" } "GITHUB_TOKEN",%{ endif } "SSH_PRIVATE_KEY", "SSH_PUBLIC_KEY"]
%{ endif ~}

proxmox_endpoint  = "${proxmox_endpoint}"
proxmox_node_name = "${proxmox_node}" # as the tree in Proxmox' web interface shows it
# The machines' pool, which exists before the create; a token limited to it cannot change other machines: docs/proxmox.md of castle.
proxmox_pool = "${cluster}"
# A new host signs its own certificate: copy /etc/pve/pve-root-ca.pem from it, name the file here and let
# SSL_CERT_FILE name it (with the system's CAs) for the Terraform provider. proxmox_insecure = true verifies nothing.
# proxmox_ca_file = "/etc/ssl/certs/proxmox.pem"

proxmox_image_datastore = "${image_datastore}" # its content types must include import
proxmox_disk_datastore  = "${disk_datastore}" # the machines' disks

network = {
  gateway = "${gateway}"
  prefix  = ${split("/", network)[1]}
  bridge  = "${bridge}"
  dns     = ["${dns}"]
}

# Ids, VIP, addresses and pool are this cluster's alone: outside of the router's
# DHCP range, and not those of another cluster.
%{ if upper(vip) == vip ~}
vip         = "${vip}"
%{ else ~}
api_endpoint = "${vip}" # a load balancer, which passes port 6443 to that of the control planes
%{ endif ~}
vm_id_range = { first = ${vm_ids.first}, last = ${vm_ids.last} }

# Memory in MiB, disks in GiB. Storage, bridge, firmware, devices and more, per machine or for all in
# machine_defaults: docs/proxmox.md of castle.
nodes = {
%{ for node in nodes ~}
%{ if node.control_plane && workers == 0 ~}
  ${node.name} = { role = "controlplane", vm_id = ${node.id}, address = "${node.address}", cores = 4, memory = 8192, longhorn_disk = 40 }
%{ else ~}
%{ if node.control_plane ~}
  ${node.name} = { role = "controlplane", vm_id = ${node.id}, address = "${node.address}", cores = 2, memory = 4096 }
%{ else ~}
  ${node.name} = { role = "worker", vm_id = ${node.id}, address = "${node.address}", cores = 4, memory = 8192, longhorn_disk = 40 }
%{ endif ~}
%{ endif ~}
%{ endfor ~}
}
%{ if workers == 0 ~}
allow_scheduling_on_controlplanes = true # there are no workers
%{ endif ~}

# What the machines run. A newer castle leaves it as it is; another version here is an upgrade: docs/operations.md of castle.
# renovate: datasource=github-releases depName=siderolabs/talos
talos_version  = "v1.13.0"
talos_contract = "v1.13" # the format of their configurations: a cluster keeps it
# renovate: datasource=github-releases depName=kubernetes/kubernetes extractVersion=^v(?<version>.*)$
kubernetes_version = "1.36.3"

# What many clusters set, too: docs/talos.md of castle.
# talos_extensions = ["siderolabs/iscsi-tools", "siderolabs/util-linux-tools", "siderolabs/qemu-guest-agent"]
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
