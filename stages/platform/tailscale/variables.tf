variable "cluster_name" {
  description = "Name of the cluster, with which the devices' names begin. castle wires it."
  type        = string
}

variable "tailscale_machines" {
  description = "The machines by name. castle wires it."
  type        = map(object({ address = string }))
}

variable "tailscale_oauth_client_id" {
  description = "Client id of the OAuth client that makes the keys. castle wires it from the secrets layer."
  type        = string
  sensitive   = true
}

variable "tailscale_oauth_client_secret" {
  description = "Its secret. castle wires it from the secrets layer."
  type        = string
  sensitive   = true
}

variable "tailscale_tags" {
  description = "Tags of the devices. The OAuth client must have them."
  type        = list(string)

  validation {
    condition     = length(var.tailscale_tags) > 0 && alltrue([for tag in var.tailscale_tags : can(regex("^tag:[a-zA-Z][a-zA-Z0-9-]*$", tag))])
    error_message = "tailscale_tags has one tag at least, such as tag:node: a key of an OAuth client belongs to nobody else."
  }
}

variable "tailscale_key_expiry" {
  description = "Seconds after which an unused key is dead. A machine uses its key minutes after it was made."
  type        = number
  default     = 3600

  validation {
    condition     = var.tailscale_key_expiry >= 300 && var.tailscale_key_expiry <= 3600
    error_message = "tailscale_key_expiry is between 300 and 3600 seconds: machines need minutes, and a key is for one run."
  }
}

variable "tailscale_api" {
  description = "URL of Tailscale's API."
  type        = string
  default     = "https://api.tailscale.com"

  validation {
    condition     = can(regex("^https://[^/]+$", var.tailscale_api))
    error_message = "tailscale_api is a https:// address without a path."
  }
}
