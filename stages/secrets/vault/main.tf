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
    secretbox_key           = "TALOS_SECRETBOX_KEY"
    tailscale_client_id     = "TAILSCALE_OAUTH_CLIENT_ID"
    tailscale_client_secret = "TAILSCALE_OAUTH_CLIENT_SECRET"
    vault_ca_cert           = "VAULT_CA_CERT"
    vault_reader_token      = "VAULT_READER_TOKEN"
  }

  # Few clusters have these, so nobody has to list them.
  optional = setunion(var.vault_optional_secrets, ["CILIUM_BGP_PASSWORD", "HCLOUD_TOKEN", "REGISTRY_AUTHS", "GIT_SSH_PRIVATE_KEY", "GIT_SSH_KNOWN_HOSTS", "SOPS_AGE_KEY"])

  # A secret whose last version was deleted is not an object.
  secrets = coalesce(jsondecode(data.vault_kv_secret_v2.cluster.data_json), {})
  value   = { for output, name in local.names : output => try(length(local.secrets[name]) > 0 ? local.secrets[name] : null, null) }
}

# One read for all of them.
data "vault_kv_secret_v2" "cluster" {
  mount = var.vault_kv_mount
  name  = var.vault_kv_path

  lifecycle {
    # An empty secret is as bad as a missing one, and is found much later. All
    # that is wrong is named at once.
    postcondition {
      condition = alltrue([
        for name in values(local.names) : try(length(jsondecode(self.data_json)[name]) > 0, false) || contains(local.optional, name)
      ])
      error_message = format(
        "Vault's secret %s (mount %s, %s) lacks, or has empty: %s. Add them there (castle secrets seed), or list those that this cluster does without in vault_optional_secrets.",
        var.vault_kv_path, var.vault_kv_mount, var.vault_address,
        join(", ", sort(nonsensitive([
          for name in values(local.names) : name
          if !try(length(jsondecode(self.data_json)[name]) > 0, false) && !contains(local.optional, name)
        ])))
      )
    }
  }
}
