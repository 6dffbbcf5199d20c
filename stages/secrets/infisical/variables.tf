variable "infisical_host" {
  description = "Infisical's address. The EU and US clouds are two installations: an identity of one is refused by the other."
  type        = string
  default     = "https://eu.infisical.com"

  validation {
    condition     = can(regex("^https://[^/]+$", var.infisical_host))
    error_message = "infisical_host is a https:// address without a path, such as https://eu.infisical.com."
  }
}

variable "infisical_project_id" {
  description = "Id of the Infisical project that holds the cluster's secrets (Project settings, \"Copy project id\")."
  type        = string

  validation {
    condition     = length(trimspace(var.infisical_project_id)) > 0
    error_message = "infisical_project_id must not be empty."
  }
}

variable "infisical_environment" {
  description = "Slug of the environment inside the project."
  type        = string
  default     = "prod"
}

variable "infisical_folder" {
  description = "Folder of this cluster's secrets. castle wires /ephemeral-castle/<cluster>/<platform>."
  type        = string

  validation {
    condition     = startswith(var.infisical_folder, "/")
    error_message = "infisical_folder begins with a slash."
  }
}

variable "infisical_optional_secrets" {
  description = "Secrets that the folder may lack; their outputs are then null. Every other one that the stage reads is required."
  type        = set(string)
  default     = ["GIT_USERNAME", "SSH_PRIVATE_KEY", "SSH_PUBLIC_KEY"]
}
