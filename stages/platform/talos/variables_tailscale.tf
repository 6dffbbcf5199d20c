variable "tailscale" {
  description = "What the extension siderolabs/tailscale joins with: platform.tailscale in cluster.hcl, from the stage platform/tailscale. null: nothing."
  type        = object({ auth_keys = map(string), tags = map(list(string)), api = string, client_id = string, client_secret = string })
  default     = null
  sensitive   = true

  validation {
    condition     = var.tailscale == null || length(var.talos_extensions) == 0 || contains(var.talos_extensions, "siderolabs/tailscale")
    error_message = "The input tailscale needs siderolabs/tailscale in talos_extensions: without the extension nobody uses the keys."
  }

  validation {
    condition     = (var.tailscale == null) == (length(var.tailscale_tags) == 0)
    error_message = "tailscale_tags and the input tailscale belong together: tailscale = platform.tailscale in cluster.hcl, in the inputs of the stage that makes Kubernetes."
  }
}

variable "tailscale_tags" {
  description = "Tags of the devices, as for platform/tailscale. castle then waits until each machine is in the tailnet."
  type        = list(string)
  default     = []
}

variable "tailscale_extra_args" {
  description = "Further arguments of tailscale up on each machine, such as [\"--accept-routes\", \"--advertise-routes=10.0.0.0/24\"]."
  type        = list(string)
  default     = []

  validation {
    condition     = alltrue([for argument in var.tailscale_extra_args : can(regex("^--[a-z]", argument)) && !can(regex("auth|^--hostname", argument))])
    error_message = "An argument in tailscale_extra_args begins with --, and none is a key or a host name: castle sets those."
  }
}
