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
