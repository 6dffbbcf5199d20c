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

variable "vault_kv_path" {
  description = "Path of the one secret that holds this cluster's, by name. castle wires ephemeral-castle/<cluster>/<platform>."
  type        = string
}

variable "vault_optional_secrets" {
  description = "Secrets that Vault may lack; their outputs are then null. Every other one that the stage reads is required."
  type        = set(string)
  default = [
    "ESO_CLIENT_ID", "ESO_CLIENT_SECRET", "GIT_USERNAME", "SSH_PRIVATE_KEY", "SSH_PUBLIC_KEY", "TAILSCALE_OAUTH_CLIENT_ID",
    "TAILSCALE_OAUTH_CLIENT_SECRET", "TALOS_SECRETBOX_KEY", "VAULT_CA_CERT", "VAULT_READER_TOKEN",
  ]
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
