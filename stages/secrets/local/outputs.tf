output "proxmox_api_token" {
  description = "Proxmox API token in the provider's form, <user>@<realm>!<name>=<secret>."
  value       = try("${local.value.proxmox_token_id}=${local.value.proxmox_token_secret}", null)
  sensitive   = true

  # An empty secret is as bad as a missing one, and is found much later. All
  # that is wrong is named at once.
  precondition {
    condition = length(local.lacking) == 0
    error_message = format(
      "local_secrets in secrets.tfvars lacks, or has empty: %s. Add them there, or list those that this cluster does without in local_optional_secrets.",
      join(", ", local.lacking)
    )
  }
}

output "hcloud_token" {
  description = "API token of a project of Hetzner Cloud, or null."
  value       = local.value.hcloud_token
  sensitive   = true
}

output "ssh_private_key" {
  description = "Private SSH key of the cluster's operator, or null. No stage of the library needs it: Talos has no SSH."
  value       = local.value.ssh_private_key
  sensitive   = true
}

output "ssh_public_key" {
  description = "Public half of ssh_private_key, or null."
  value       = nonsensitive(local.value.ssh_public_key)
}

output "s3_access_key_id" {
  description = "Access key id of the backup bucket, or null."
  value       = local.value.s3_access_key_id
  sensitive   = true
}

output "s3_secret_access_key" {
  description = "Secret access key of the backup bucket, or null."
  value       = local.value.s3_secret_access_key
  sensitive   = true
}

output "git_username" {
  description = "User name for the Git repository. Hosts that take a token ignore it, so \"git\" is the default."
  value       = nonsensitive(coalesce(local.value.git_username, "git"))
}

output "git_token" {
  description = "Token that Flux reads the Git repository with."
  value       = local.value.git_token
  sensitive   = true
}

output "eso_client_id" {
  description = "Client id of the machine identity that External Secrets uses inside the cluster."
  value       = local.value.eso_client_id
  sensitive   = true
}

output "eso_client_secret" {
  description = "Client secret of the machine identity that External Secrets uses inside the cluster."
  value       = local.value.eso_client_secret
  sensitive   = true
}

output "cilium_bgp_password" {
  description = "Password of the sessions of BGP with routers, or null."
  value       = local.value.cilium_bgp_password
  sensitive   = true
}

output "registry_auths" {
  description = "Credentials of image registries in the format of Docker's config.json, or null."
  value       = local.value.registry_auths
  sensitive   = true
}

output "git_ssh_private_key" {
  description = "Private key in OpenSSH's format that Flux reads the Git repository with over SSH, or null."
  value       = local.value.git_ssh_private_key
  sensitive   = true
}

output "git_ssh_known_hosts" {
  description = "Public keys of the Git server, as ssh-keyscan prints them, or null."
  value       = try(nonsensitive(local.value.git_ssh_known_hosts), null)
}

output "sops_age_key" {
  description = "Key of age that decrypts what SOPS has encrypted in the repository that Flux follows, or null."
  value       = local.value.sops_age_key
  sensitive   = true
}

output "tailscale_oauth_client_id" {
  description = "Client id of the OAuth client that makes the machines' Tailscale keys, or null."
  value       = local.value.tailscale_client_id
  sensitive   = true
}

output "tailscale_oauth_client_secret" {
  description = "Its secret, or null."
  value       = local.value.tailscale_client_secret
  sensitive   = true
}
