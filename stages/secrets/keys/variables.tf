variable "cluster_name" {
  description = "Name of the cluster. castle wires it."
  type        = string
}

variable "talos_version" {
  description = "Talos release that the machines run, such as v1.13.0."
  type        = string
  default     = "v1.13.0"

  validation {
    condition     = can(regex("^v[0-9]+\\.[0-9]+\\.[0-9]+$", var.talos_version))
    error_message = "talos_version is a release such as v1.13.0."
  }
}

variable "database_users" {
  description = "Database users that get a password. admin is always among them."
  type        = set(string)
  default     = ["admin"]

  validation {
    condition     = contains(var.database_users, "admin")
    error_message = "database_users must contain admin."
  }
}

variable "database_password_length" {
  description = "Length of a new database password. Existing ones are kept."
  type        = number
  default     = 32

  validation {
    condition     = var.database_password_length >= 16 && floor(var.database_password_length) == var.database_password_length
    error_message = "database_password_length is a whole number of at least 16."
  }
}
