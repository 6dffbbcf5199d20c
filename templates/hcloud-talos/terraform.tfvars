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
# Every variable is explained in the variables.tf of its stage; `castle stage show platform/hcloud-machines`
# lists those of the machines.

%{ if secrets == "local" ~}
# This cluster has no Proxmox and makes no backups. The ESO_ secrets are for clusters with External Secrets.
local_optional_secrets = [
  "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "ESO_CLIENT_ID", "ESO_CLIENT_SECRET", "GIT_USERNAME",%{ if substr(git_url, 0, 6) == "ssh://" } "GITHUB_TOKEN",%{ endif } "PROXMOX_TOKEN_ID", "PROXMOX_TOKEN_SECRET", "SSH_PRIVATE_KEY", "SSH_PUBLIC_KEY",
]
%{ endif ~}
%{ if secrets == "vault" ~}
vault_address = "${vault_address}"
# vault_ca_cert_file = "/etc/ssl/certs/vault.pem" # the authority that signed its certificate, if that is your own

# This cluster has no Proxmox and makes no backups. The other secrets are for clusters with External Secrets,
# Tailscale or the landing zone: docs/vault.md of castle.
vault_optional_secrets = [
  "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "ESO_CLIENT_ID", "ESO_CLIENT_SECRET", "GIT_USERNAME",%{ if substr(git_url, 0, 6) == "ssh://" } "GITHUB_TOKEN",%{ endif } "PROXMOX_TOKEN_ID", "PROXMOX_TOKEN_SECRET", "SSH_PRIVATE_KEY", "SSH_PUBLIC_KEY",
  "TAILSCALE_OAUTH_CLIENT_ID", "TAILSCALE_OAUTH_CLIENT_SECRET", "TALOS_SECRETBOX_KEY", "VAULT_CA_CERT", "VAULT_READER_TOKEN",
]
%{ endif ~}
%{ if secrets == "infisical" ~}
infisical_host         = "${infisical_host}" # the EU and US clouds are two installations
infisical_project_id   = "${infisical_project_id}"
infisical_project_slug = "${infisical_project_slug}"
infisical_environment  = "${infisical_environment}"

# This cluster has no Proxmox and makes no backups.
infisical_optional_secrets = [
  "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "GIT_USERNAME",%{ if substr(git_url, 0, 6) == "ssh://" } "GITHUB_TOKEN",%{ endif } "PROXMOX_TOKEN_ID", "PROXMOX_TOKEN_SECRET", "SSH_PRIVATE_KEY", "SSH_PUBLIC_KEY",
]
%{ endif ~}

hcloud_location      = "${hcloud_location}"
hcloud_server_type   = "${hcloud_server_type}"
hcloud_architectures = ["%{ if substr(hcloud_server_type, 0, 3) == "cax" }arm%{ else }x86%{ endif }"]

# The machines' private network, which castle makes. castle runs in it, or has a tunnel to it.
network = {
  ip_range = "${hcloud_network}"
  subnet   = "${hcloud_network}"
  zone     = "${lookup({ ash = "us-east", hil = "us-west", sin = "ap-southeast" }, hcloud_location, "eu-central")}"
}

api_endpoint = "${trimsuffix(hcloud_network, "0/24")}5" # a load balancer, which castle makes

# server_type and location, per machine: docs/hcloud.md of castle.
nodes = {
%{ for i in range(control_planes) ~}
  ${format("cp-%02d", i + 1)} = { role = "controlplane", address = "${trimsuffix(hcloud_network, "0/24")}${11 + i}" }
%{ endfor ~}
%{ for i in range(workers) ~}
  ${format("worker-%02d", i + 1)} = { role = "worker", address = "${trimsuffix(hcloud_network, "0/24")}${21 + i}" }
%{ endfor ~}
}
%{ if workers == 0 ~}
allow_scheduling_on_controlplanes = true # there are no workers
%{ endif ~}

# The stage hcloud-controller gives nodes their provider id, and Services load balancers. A running cluster keeps it.
external_cloud_provider = true
# hcloud_ingress = { namespace = "traefik", service = "traefik" } # a Service that Flux brings, and that has to answer at its address

# What the machines run. A newer castle leaves it as it is; another version here is an upgrade: docs/operations.md of castle.
# renovate: datasource=github-releases depName=siderolabs/talos
talos_version  = "v1.13.0"
talos_contract = "v1.13" # the format of their configurations: a cluster keeps it
# renovate: datasource=github-releases depName=kubernetes/kubernetes extractVersion=^v(?<version>.*)$
kubernetes_version = "1.36.3"

# What many clusters set, too: docs/talos.md of castle.
# node_labels      = { worker-01 = { "topology.kubernetes.io/zone" = "rack-1" } }
# node_taints      = { worker-01 = { "nvidia.com/gpu" = "present:NoSchedule" } }
# registry_mirrors = { "docker.io" = { endpoints = ["https://cache.lan/v2/docker.io"], override_path = true } }

git_url    = "${git_url}"
git_branch = "${git_branch}"
git_path   = "${git_path}"

# What the Git repository's manifests substitute.
cluster_vars = {
  traefik_lb_ip = "${trimsuffix(hcloud_network, "0/24")}200" # for the annotation load-balancer.hetzner.cloud/private-ipv4
}
