# The privileges for secrets/vault-jwt, in addition to the policy of secrets/vault. The
# mount is jwt-<cluster>; another vault_jwt_path needs other paths here.
#
# A token that can write and assign policies can read everything in this Vault:
# protect it like the root token, with a lifetime of one run.

# The mount. Vault requires sudo to enable or disable an auth method.
path "sys/auth/jwt-*" {
  capabilities = ["create", "update", "delete", "sudo"]
}

# Terraform reads the mount from the list, or directly.
path "sys/auth" {
  capabilities = ["read"]
}

path "sys/mounts/auth/jwt-*" {
  capabilities = ["read"]
}

# The keys that verify a token, and the roles of the ServiceAccounts.
path "auth/jwt-*" {
  capabilities = ["create", "read", "update", "delete"]
}

# The cluster's own policies only: castle-<cluster>-<role>.
path "sys/policies/acl/castle-*" {
  capabilities = ["create", "read", "update", "delete"]
}
