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
  optional = setunion(var.local_optional_secrets, ["CILIUM_BGP_PASSWORD", "HCLOUD_TOKEN", "REGISTRY_AUTHS", "GIT_SSH_PRIVATE_KEY", "GIT_SSH_KNOWN_HOSTS", "SOPS_AGE_KEY", "TAILSCALE_OAUTH_CLIENT_ID", "TAILSCALE_OAUTH_CLIENT_SECRET"])

  value = { for output, name in local.names : output => try(length(var.local_secrets[name]) > 0 ? var.local_secrets[name] : null, null) }

  # Names are no secrets.
  lacking = sort([
    for name in values(local.names) : name
    if !nonsensitive(try(length(var.local_secrets[name]) > 0, false)) && !contains(local.optional, name)
  ])
}
