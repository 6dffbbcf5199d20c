# The provider reads the token from VAULT_TOKEN. It is the only secret that a user holds, unless an
# AppRole takes its place.
provider "vault" {
  address      = var.vault_address
  ca_cert_file = var.vault_ca_cert_file

  # A token that may read a few secrets may make no other tokens.
  skip_child_token = true

  dynamic "auth_login" {
    for_each = var.vault_role_id == null ? [] : [var.vault_role_id]

    content {
      path = "auth/${var.vault_role_mount}/login"

      parameters = {
        role_id   = auth_login.value
        secret_id = var.vault_role_secret_id
      }
    }
  }
}
