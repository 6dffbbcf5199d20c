output "vault_database_path" {
  description = "Where the database engine is mounted: credentials of a role are at <path>/creds/<role>."
  value       = vault_mount.database.path
}

output "vault_database_kv_path" {
  description = "Where in the KV engine the passwords of the database's users are."
  value       = vault_kv_secret_v2.passwords.path
}
