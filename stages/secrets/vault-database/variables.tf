variable "vault_address" {
  description = "Vault's address, such as https://vault.example.org:8200."
  type        = string

  validation {
    condition     = can(regex("^https://[^/]+$", var.vault_address))
    error_message = "vault_address is a https:// address without a path, such as https://vault.example.org:8200."
  }
}

variable "vault_ca_cert_file" {
  description = "File with the certificate of the authority that signed Vault's, in PEM. Without it the system's authorities count."
  type        = string
  default     = null
}

variable "vault_kv_mount" {
  description = "Where the KV engine, version 2, is mounted."
  type        = string
  default     = "secret"
}

variable "vault_role_mount" {
  description = "Where AppRole is mounted."
  type        = string
  default     = "approle"
}

variable "vault_role_id" {
  description = "Id of an AppRole to log in with. Without it VAULT_TOKEN is used."
  type        = string
  default     = null
}

variable "vault_role_secret_id" {
  description = "The AppRole's secret id, in secrets.tfvars or TF_VAR_vault_role_secret_id."
  type        = string
  default     = null
  sensitive   = true
}

variable "vault_database_cluster" {
  description = "The cluster's name. castle wires it."
  type        = string
}

variable "vault_database_path" {
  description = "Where the database engine is mounted. null: database-<cluster>, so that clusters share a Vault."
  type        = string
  default     = null
}

variable "vault_database_kv_path" {
  description = "Path of the secret that holds the passwords of the database's users. castle wires ephemeral-castle/<cluster>/<platform>/database."
  type        = string
}

variable "vault_database_passwords" {
  description = "Password of each login role of the database's users, by role. castle wires them from secrets/keys, their one source."
  type        = map(string)
  sensitive   = true
}

variable "vault_database_logins" {
  description = "Login role in use, by database user. castle wires them from secrets/keys."
  type        = map(string)
}

variable "vault_database_admin" {
  description = "User whom Vault makes others with; one of database_users of secrets/keys."
  type        = string
  default     = "admin"

  validation {
    condition     = contains(keys(var.vault_database_logins), var.vault_database_admin)
    error_message = "vault_database_admin is none of database_users."
  }
}

variable "vault_database_host" {
  description = "Address or name at which Vault reaches PostgreSQL."
  type        = string

  validation {
    condition     = can(regex("^[0-9A-Za-z.:-]+$", var.vault_database_host))
    error_message = "vault_database_host is an address or a name, without a port."
  }
}

variable "vault_database_port" {
  description = "PostgreSQL's port."
  type        = number
  default     = 5432

  validation {
    condition     = var.vault_database_port >= 1 && var.vault_database_port <= 65535 && floor(var.vault_database_port) == var.vault_database_port
    error_message = "vault_database_port is a whole number from 1 to 65535."
  }
}

variable "vault_database_name" {
  description = "Name of the database."
  type        = string

  validation {
    condition     = can(regex("^[0-9A-Za-z_-]+$", var.vault_database_name))
    error_message = "vault_database_name consists of letters, digits, hyphens and underscores."
  }
}

variable "vault_database_sslmode" {
  description = "PostgreSQL's sslmode: disable, require, verify-ca, verify-full."
  type        = string
  default     = "require"

  validation {
    condition     = contains(["disable", "require", "verify-ca", "verify-full"], var.vault_database_sslmode)
    error_message = "vault_database_sslmode is disable, require, verify-ca or verify-full."
  }
}

variable "vault_database_roles" {
  description = <<-EOT
    What Vault makes users for, by role: creation are the SQL statements that make one ({{name}}, {{password}} and {{expiration}}
    stand for what Vault puts there), revocation those that take it away (empty: PostgreSQL's plugin knows how). Seconds.
  EOT
  type = map(object({
    creation    = list(string)
    revocation  = optional(list(string), [])
    default_ttl = optional(number, 3600)
    max_ttl     = optional(number, 86400)
  }))
  default = {}

  validation {
    condition     = alltrue([for role in var.vault_database_roles : alltrue([for ttl in [role.default_ttl, role.max_ttl] : ttl >= 1 && floor(ttl) == ttl])])
    error_message = "A role's default_ttl and max_ttl are whole seconds."
  }
}
