stage {
  summary  = "Reads the cluster's secrets from a Vault"
  volatile = true

  inputs = {
    vault_kv_path = "ephemeral-castle/${cluster.name}/${cluster.platform}"
  }
}

# Terraform's messages for a sealed Vault, an expired token and a missing policy are almost the
# same. It has none for a root token.
preflight "vault_secrets" "readable" {
  address     = var.vault_address
  ca_file     = var.vault_ca_cert_file
  mount       = var.vault_kv_mount
  path        = var.vault_kv_path
  role_mount  = var.vault_role_mount
  role_id     = var.vault_role_id
  role_secret = var.vault_role_secret_id
}
