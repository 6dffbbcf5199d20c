stage {
  summary    = "Lets Vault make database users, before there is a database"
  persistent = true

  inputs = {
    vault_database_cluster   = cluster.name
    vault_database_kv_path   = "ephemeral-castle/${cluster.name}/${cluster.platform}/database"
    vault_database_passwords = secrets.database_passwords
  }
}
