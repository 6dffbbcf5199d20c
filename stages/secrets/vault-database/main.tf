locals {
  path = coalesce(var.vault_database_path, "database-${var.vault_database_cluster}")
}

resource "vault_mount" "database" {
  path = local.path
  type = "database"
}

resource "vault_database_secret_backend_connection" "cluster" {
  backend       = vault_mount.database.path
  name          = var.vault_database_name
  allowed_roles = sort(keys(var.vault_database_roles))

  # The database starts with the cluster, much later.
  verify_connection = false

  postgresql {
    connection_url = join(" ", [
      "host=${var.vault_database_host}", "port=${var.vault_database_port}", "dbname=${var.vault_database_name}",
      "user={{username}}", "password={{password}}", "sslmode=${var.vault_database_sslmode}",
    ])
    # A session has its rights from when it began: one from before databaseInitSQL would keep too few.
    max_idle_connections = -1

    username = var.vault_database_logins[var.vault_database_admin]
    password = var.vault_database_passwords[var.vault_database_logins[var.vault_database_admin]]
  }
}

resource "vault_database_secret_backend_role" "role" {
  for_each = var.vault_database_roles

  backend               = vault_mount.database.path
  name                  = each.key
  db_name               = vault_database_secret_backend_connection.cluster.name
  creation_statements   = each.value.creation
  revocation_statements = each.value.revocation
  default_ttl           = each.value.default_ttl
  max_ttl               = each.value.max_ttl
}

# A manual restore of the database needs the passwords of all login roles. Clients read <user>_username and
# <user>_password, the role in use. Destroying the stage deletes them for good.
resource "vault_kv_secret_v2" "passwords" {
  mount = var.vault_kv_mount
  name  = var.vault_database_kv_path
  data_json = jsonencode(merge(
    var.vault_database_passwords,
    { for user, role in var.vault_database_logins : "${user}_username" => role },
    { for user, role in var.vault_database_logins : "${user}_password" => var.vault_database_passwords[role] },
  ))
  delete_all_versions = true
}
