# What castle may do with the secrets of its clusters, as the policy "castle":
#
#   vault policy write castle vault-policy.hcl
#   vault token create -orphan -policy=castle -period=24h
#
# "secret" is where the KV engine is mounted.

# secrets/vault reads them, and `castle secrets seed` writes those that are missing.
path "secret/data/ephemeral-castle/*" {
  capabilities = ["create", "read", "update"]
}

# A secret whose last version was deleted is written anew.
path "secret/metadata/ephemeral-castle/*" {
  capabilities = ["read"]
}
