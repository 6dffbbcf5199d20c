locals {
  # Output name => secret name.
  names = {
    proxmox_token_id        = "PROXMOX_TOKEN_ID"
    proxmox_token_secret    = "PROXMOX_TOKEN_SECRET"
    hcloud_token            = "HCLOUD_TOKEN"
    ssh_private_key         = "SSH_PRIVATE_KEY"
    ssh_public_key          = "SSH_PUBLIC_KEY"
    s3_access_key_id        = "AWS_ACCESS_KEY_ID"
    s3_secret_access_key    = "AWS_SECRET_ACCESS_KEY"
    git_username            = "GIT_USERNAME"
    git_token               = "GITHUB_TOKEN"
    eso_client_id           = "ESO_CLIENT_ID"
    eso_client_secret       = "ESO_CLIENT_SECRET"
    cilium_bgp_password     = "CILIUM_BGP_PASSWORD"
    registry_auths          = "REGISTRY_AUTHS"
    git_ssh_private_key     = "GIT_SSH_PRIVATE_KEY"
    git_ssh_known_hosts     = "GIT_SSH_KNOWN_HOSTS"
    sops_age_key            = "SOPS_AGE_KEY"
    tailscale_client_id     = "TAILSCALE_OAUTH_CLIENT_ID"
    tailscale_client_secret = "TAILSCALE_OAUTH_CLIENT_SECRET"
  }

  # Few clusters have these, so nobody has to list them.
  optional = setunion(var.infisical_optional_secrets, ["CILIUM_BGP_PASSWORD", "HCLOUD_TOKEN", "REGISTRY_AUTHS", "GIT_SSH_PRIVATE_KEY", "GIT_SSH_KNOWN_HOSTS", "SOPS_AGE_KEY", "TAILSCALE_OAUTH_CLIENT_ID", "TAILSCALE_OAUTH_CLIENT_SECRET"])

  value = { for output, name in local.names : output => try(data.infisical_secrets.cluster.secrets[name].value, null) }
}

# One read for all of them.
data "infisical_secrets" "cluster" {
  workspace_id = var.infisical_project_id
  env_slug     = var.infisical_environment
  folder_path  = var.infisical_folder

  lifecycle {
    # An empty secret is as bad as a missing one, and is found much later. All
    # that is wrong is named at once.
    postcondition {
      condition = alltrue([
        for name in values(local.names) : try(length(self.secrets[name].value) > 0, false) || contains(local.optional, name)
      ])
      error_message = format(
        "Infisical folder %s (environment %s, project %s) lacks, or has empty: %s. Add them there, or list those that this cluster does without in infisical_optional_secrets.",
        var.infisical_folder, var.infisical_environment, var.infisical_project_id,
        join(", ", sort(nonsensitive([
          for name in values(local.names) : name
          if !try(length(self.secrets[name].value) > 0, false) && !contains(local.optional, name)
        ])))
      )
    }
  }
}
