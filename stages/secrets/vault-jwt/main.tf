locals {
  path   = coalesce(var.vault_jwt_path, "jwt-${var.vault_jwt_cluster}")
  issuer = coalesce(var.serviceaccount_issuer, "https://${var.vip}:6443")
}

# Vault verifies a token by its signature and calls no cluster. So this works before the cluster
# exists, and for every cluster with the same key.
resource "vault_jwt_auth_backend" "cluster" {
  path         = local.path
  bound_issuer = local.issuer

  # Vault gives it back without the line's end, and Terraform would change it each time.
  jwt_validation_pubkeys = [trimspace(var.serviceaccount_public_key_pem)]
}

resource "vault_policy" "role" {
  for_each = var.vault_jwt_roles

  name   = "castle-${var.vault_jwt_cluster}-${each.key}"
  policy = join("\n", [for path in sort(each.value.read) : "path ${jsonencode(path)} { capabilities = [\"read\"] }"])
}

resource "vault_jwt_auth_backend_role" "role" {
  for_each = var.vault_jwt_roles

  backend         = vault_jwt_auth_backend.cluster.path
  role_name       = each.key
  role_type       = "jwt"
  bound_audiences = each.value.audiences
  bound_subject   = "system:serviceaccount:${each.value.namespace}:${each.value.service_account}"
  user_claim      = "sub"
  token_policies  = setunion([vault_policy.role[each.key].name], each.value.policies)
  token_ttl       = each.value.ttl
}
