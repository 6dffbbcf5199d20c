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

variable "vault_jwt_cluster" {
  description = "The cluster's name: policies are called castle-<cluster>-<role>. castle wires it."
  type        = string
}

variable "vault_jwt_path" {
  description = "Where the auth method is mounted. null: jwt-<cluster>, so that clusters share a Vault."
  type        = string
  default     = null
}

variable "serviceaccount_public_key_pem" {
  description = "Key that verifies the cluster's ServiceAccount tokens. castle wires it from the secrets layer."
  type        = string
}

variable "serviceaccount_issuer" {
  description = "Issuer that the cluster's ServiceAccount tokens name. null: https://<vip>:6443, as Talos has it."
  type        = string
  default     = null

  validation {
    condition     = var.serviceaccount_issuer == null || can(regex("^https://[^/?#]+(/[^?#]*)?$", var.serviceaccount_issuer))
    error_message = "serviceaccount_issuer is a https:// address, such as https://k8s.example.org:6443."
  }
}

variable "vip" {
  description = "Virtual address of the Kubernetes API, as the platform has it."
  type        = string
}

variable "vault_jwt_roles" {
  description = <<-EOT
    Who may log in, by role: one ServiceAccount of the cluster. read are the paths that it may read (secret/data/blue/grafana; a
    trailing * takes all below), policies further ones that exist already. Its tokens must be made for one of the audiences. ttl
    is in seconds.
  EOT
  type = map(object({
    namespace       = string
    service_account = string
    read            = optional(set(string), [])
    policies        = optional(set(string), [])
    audiences       = optional(set(string), ["vault"])
    ttl             = optional(number, 3600)
  }))
  default = {}

  validation {
    condition     = alltrue([for name, role in var.vault_jwt_roles : length(role.audiences) > 0])
    error_message = "A role without audiences would accept a token issued for another service: name at least one."
  }

  validation {
    condition     = alltrue([for role in var.vault_jwt_roles : role.ttl >= 1 && floor(role.ttl) == role.ttl])
    error_message = "A role's ttl is a whole number of seconds."
  }
}
