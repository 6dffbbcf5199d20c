stage {
  summary    = "Lets Vault create database users, before the database exists"
  persistent = true

  inputs = {
    vault_database_cluster   = cluster.name
    vault_database_kv_path   = "ephemeral-castle/${cluster.name}/${cluster.platform}/database"
    vault_database_passwords = secrets.database_passwords
    vault_database_logins    = secrets.database_logins
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
  kind        = "secrets"
  path        = coalesce(var.vault_database_path, "database-${var.vault_database_cluster}")
  resource    = "vault_mount.database"
  setting     = "vault_database_path"
  policy      = "castle stage show secrets/vault-database vault-policy.hcl"
  leases      = true
  kv_mount    = var.vault_kv_mount
  kv_path     = var.vault_database_kv_path
  writes = concat(
    ["${coalesce(var.vault_database_path, "database-${var.vault_database_cluster}")}/config/${var.vault_database_name}"],
    [for role in keys(var.vault_database_roles) : "${coalesce(var.vault_database_path, "database-${var.vault_database_cluster}")}/roles/${role}"],
  )
}
