variable "secret_store_name" {
  description = "Name of the ClusterSecretStore that ExternalSecrets refer to."
  type        = string
  default     = "infisical"
}

variable "secret_store_folder" {
  description = "Folder that secrets are looked up in where they name none."
  type        = string
  default     = "/"

  validation {
    condition     = startswith(var.secret_store_folder, "/")
    error_message = "secret_store_folder begins with a slash."
  }
}

variable "secret_store_namespace" {
  description = "Namespace of the identity's Secret. castle wires it from External Secrets."
  type        = string
}

variable "secret_store_identity_secret" {
  description = "Secret with the machine identity (keys clientId and clientSecret). castle wires it from External Secrets."
  type        = string
}

variable "infisical_host" {
  description = "Infisical's address. The EU and US clouds are two installations: an identity of one is refused by the other."
  type        = string
  default     = "https://eu.infisical.com"
}

variable "infisical_project_slug" {
  description = "Slug of the Infisical project (Project settings). External Secrets names projects by slug, not by id."
  type        = string

  validation {
    condition     = can(regex("^[a-z0-9][a-z0-9-]*$", var.infisical_project_slug))
    error_message = "infisical_project_slug consists of lower-case letters, digits and hyphens."
  }
}

variable "infisical_environment" {
  description = "Slug of the environment inside the project."
  type        = string
  default     = "prod"
}
