variable "local_secrets" {
  description = <<-EOT
    The cluster's secrets by name, in secrets.tfvars (mode 0600, never in git). The names are those of an Infisical folder, so
    that moving there later is copying: PROXMOX_TOKEN_ID, PROXMOX_TOKEN_SECRET, AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY,
    GITHUB_TOKEN, GIT_USERNAME, ESO_CLIENT_ID, ESO_CLIENT_SECRET, SSH_PRIVATE_KEY, SSH_PUBLIC_KEY.
  EOT
  type        = map(string)
  sensitive   = true
}

variable "local_optional_secrets" {
  description = "Secrets that local_secrets may lack; their outputs are then null. Every other one is required."
  type        = set(string)
  default     = ["ESO_CLIENT_ID", "ESO_CLIENT_SECRET", "GIT_USERNAME", "SSH_PRIVATE_KEY", "SSH_PUBLIC_KEY"]
}
