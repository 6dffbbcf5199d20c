# The policy "castle" grants castle access to the secrets of its clusters:
#
#   vault policy write castle vault-policy.hcl
#   vault token create -orphan -policy=castle -period=24h
#
# "secret" is the mount of the KV engine.

# secrets/vault reads them, and `castle secrets seed` writes those that are missing.
path "secret/data/ephemeral-castle/*" {
  capabilities = ["create", "read", "update"]
}

# castle writes a secret again whose last version was deleted.
path "secret/metadata/ephemeral-castle/*" {
  capabilities = ["read"]
}
