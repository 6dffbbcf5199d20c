# What castle needs beside the policy of secrets/vault for secrets/vault-jwt. The
# mount is jwt-<cluster>; another vault_jwt_path needs other paths here.
#
# Who may write policies and say who gets them can get at everything in this
# Vault: such a token is kept like the root token, and lives no longer than a run.

# The mount. Vault asks for sudo where a way to log in is made or taken away.
path "sys/auth/jwt-*" {
  capabilities = ["create", "update", "delete", "sudo"]
}

# Terraform looks its mount up in the list, or by itself.
path "sys/auth" {
  capabilities = ["read"]
}

path "sys/mounts/auth/jwt-*" {
  capabilities = ["read"]
}

# What verifies a token, and which ServiceAccount gets what.
path "auth/jwt-*" {
  capabilities = ["create", "read", "update", "delete"]
}

# Its own policies, castle-<cluster>-<role>, and nobody else's.
path "sys/policies/acl/castle-*" {
  capabilities = ["create", "read", "update", "delete"]
}
