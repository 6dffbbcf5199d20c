variable "external_secrets_namespace" {
  description = "Namespace of External Secrets and of its machine identity."
  type        = string
  default     = "external-secrets"
}

variable "external_secrets_identity_secret" {
  description = "Name of the Secret with the machine identity (keys clientId and clientSecret)."
  type        = string
  default     = "infisical-machine-identity"
}

variable "external_secrets_client_id" {
  description = "Client id of the machine identity. castle wires it from the secrets layer."
  type        = string
  sensitive   = true
}

variable "external_secrets_client_secret" {
  description = "Client secret of the machine identity. castle wires it from the secrets layer."
  type        = string
  sensitive   = true
}

variable "external_secrets_chart_repository" {
  description = "Helm repository of the chart external-secrets."
  type        = string
  default     = "https://charts.external-secrets.io"
}

variable "external_secrets_chart_version" {
  description = "Version of the chart external-secrets. From 0.17 on it serves external-secrets.io/v1 only."
  type        = string
  default     = "2.9.0"

  validation {
    condition     = can(regex("^[0-9]+\\.[0-9]+\\.[0-9]+$", var.external_secrets_chart_version)) && !startswith(var.external_secrets_chart_version, "0.")
    error_message = "external_secrets_chart_version is an exact version from 1.0.0 on: the secret store is written for external-secrets.io/v1."
  }
}

variable "external_secrets_values" {
  description = "Further values of the chart (YAML), applied last."
  type        = list(string)
  default     = []
}
