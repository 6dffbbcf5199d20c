stage {
  summary    = "Lets Vault verify the cluster's ServiceAccounts, before the cluster exists"
  persistent = true

  inputs = {
    vault_jwt_cluster             = cluster.name
    serviceaccount_public_key_pem = secrets.serviceaccount_public_key_pem
  }
}

# Without this preflight, Vault reports a mount conflict or a missing permission only in the middle
# of the apply.
preflight "vault_mount" "free" {
  address     = var.vault_address
  ca_file     = var.vault_ca_cert_file
  role_mount  = var.vault_role_mount
  role_id     = var.vault_role_id
  role_secret = var.vault_role_secret_id
  kind        = "auth"
  path        = coalesce(var.vault_jwt_path, "jwt-${var.vault_jwt_cluster}")
  resource    = "vault_jwt_auth_backend.cluster"
  setting     = "vault_jwt_path"
  policy      = "castle stage show secrets/vault-jwt vault-policy.hcl"
  writes = concat(
    ["auth/${coalesce(var.vault_jwt_path, "jwt-${var.vault_jwt_cluster}")}/config"],
    [for role in keys(var.vault_jwt_roles) : "auth/${coalesce(var.vault_jwt_path, "jwt-${var.vault_jwt_cluster}")}/role/${role}"],
    [for role in keys(var.vault_jwt_roles) : "sys/policies/acl/castle-${var.vault_jwt_cluster}-${role}"],
  )
}
