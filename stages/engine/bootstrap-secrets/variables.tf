variable "database_users" {
  description = "Database users, as secrets/keys has them; each of their two login roles gets a Secret that PGO adopts."
  type        = set(string)
  default     = ["admin"]
}

variable "database_passwords" {
  description = "Password of each login role of the database's users, by role. castle wires them from secrets/keys, their one source."
  type        = map(string)
  sensitive   = true
}

variable "bootstrap_database" {
  description = "Name of the PostgresCluster that Flux brings, and its namespace. s3: pgBackRest finds the account of a bucket in the Secret <name>-s3. null: no Secrets for a database."
  type        = object({ name = string, namespace = string, s3 = optional(bool, false) })
  default     = null
}

variable "s3_access_key_id" {
  description = "Access key id of the bucket that pgBackRest archives into. castle wires it."
  type        = string
  default     = null
  sensitive   = true
}

variable "s3_secret_access_key" {
  description = "Its secret access key. castle wires it."
  type        = string
  default     = null
  sensitive   = true
}

variable "bootstrap_tailscale_namespace" {
  description = "Namespace of the Tailscale operator, whose OAuth client goes into the Secret operator-oauth. null: none."
  type        = string
  default     = null
}

variable "bootstrap_vault" {
  description = "Where what reads Vault from inside the cluster finds its authority (ca.crt) and its token (token): namespace and names of the two Secrets. null: nowhere."
  type = object({
    namespace         = string
    ca_secret_name    = optional(string, "vault-ca-cert")
    token_secret_name = optional(string, "vault-eso-token")
  })
  default = null
}

variable "bootstrap_foreign_namespaces" {
  description = "Namespaces of the Secrets that exist before this stage is applied. The stage creates the others."
  type        = set(string)
  default     = []
}

variable "tailscale_oauth_client_id" {
  description = "Client id of the Tailscale operator's OAuth client. castle wires it."
  type        = string
  default     = null
  sensitive   = true
}

variable "tailscale_oauth_client_secret" {
  description = "Its secret. castle wires it."
  type        = string
  default     = null
  sensitive   = true
}

variable "vault_ca_cert" {
  description = "Certificate of the authority that signed Vault's, in PEM. castle wires it."
  type        = string
  default     = null
}

variable "vault_reader_token" {
  description = "Token that reads Vault from inside the cluster. castle wires it."
  type        = string
  default     = null
  sensitive   = true
}
