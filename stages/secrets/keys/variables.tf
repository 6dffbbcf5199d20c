variable "cluster_name" {
  description = "Name of the cluster. castle wires it."
  type        = string
}

variable "talos_contract" {
  description = "Minor release of Talos in whose format the cluster's secrets and configurations are made. A cluster keeps it."
  type        = string
  default     = "v1.13"

  validation {
    condition     = can(regex("^v[0-9]+\\.[0-9]+$", var.talos_contract))
    error_message = "talos_contract is a minor release such as v1.13."
  }
}

variable "database_users" {
  description = "Database users. Each gets two login roles, <user> and <user>-alt, with a password. admin is always among them."
  type        = set(string)
  default     = ["admin"]

  validation {
    condition     = contains(var.database_users, "admin")
    error_message = "database_users must contain admin."
  }

  validation {
    condition     = alltrue([for user in var.database_users : !endswith(user, "-alt")])
    error_message = "No name in database_users ends with -alt: the second login roles do."
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
