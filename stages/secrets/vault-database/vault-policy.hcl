# castle needs these permissions for secrets/vault-database, in addition to the policy of
# secrets/vault. The mount is database-<cluster>; another vault_database_path needs other paths
# here. "secret" is the mount of the KV engine.

path "sys/mounts/database-*" {
  capabilities = ["create", "read", "update", "delete"]
}

# Terraform looks its mount up in the list, or by itself.
path "sys/mounts" {
  capabilities = ["read"]
}

# Connections and roles. Vault has no pattern that excludes creds/; castle requests credentials only to
# prove a rotation (castle rotate), and revokes them at once.
path "database-*" {
  capabilities = ["create", "read", "update", "delete"]
}

# The users that Vault has made end before the engine does: a destroy has them
# deleted, or forgotten where their database is gone.
path "sys/leases/revoke-prefix/database-*" {
  capabilities = ["update", "sudo"]
}

path "sys/leases/revoke-force/database-*" {
  capabilities = ["update", "sudo"]
}

# The passwords of the database's users.
path "secret/data/ephemeral-castle/+/+/database" {
  capabilities = ["create", "read", "update"]
}

path "secret/metadata/ephemeral-castle/+/+/database" {
  capabilities = ["read", "delete"]
}
