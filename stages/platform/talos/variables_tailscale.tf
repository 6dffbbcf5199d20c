variable "tailscale" {
  description = "What the extension siderolabs/tailscale joins with: platform.tailscale in cluster.hcl, from the stage platform/tailscale. null: nothing."
  type        = object({ auth_keys = map(string), tags = map(list(string)), api = string, client_id = string, client_secret = string })
  default     = null
  sensitive   = true

  validation {
    condition     = (var.tailscale == null) == (length(var.tailscale_tags) == 0)
    error_message = "tailscale_tags and the input tailscale belong together: tailscale = platform.tailscale in cluster.hcl, in the inputs of the stage that makes Kubernetes."
  }
}

variable "tailscale_tags" {
  description = "Tags of the devices, as for platform/tailscale. castle then waits until each machine is in the tailnet."
  type        = list(string)
  default     = []

  # A schematic's id does not tell its extensions. Those of the default are known.
  validation {
    condition = length(var.tailscale_tags) == 0 || alltrue([
      for extensions in [
        for name, machine in var.machines : concat(var.talos_extensions, flatten([
          for key, given in var.talos_machine_schematics : given.id != null ? ["siderolabs/tailscale"] : given.extensions if contains([machine.role, name], key)
        ]))
      ] : contains(extensions, "siderolabs/tailscale") ||
      length(extensions) == 0 && var.talos_schematic_id != "613e1592b2da41ae5e265e8789429f22e121aab91cb4deb6bc3c0b6262961245"
    ])
    error_message = "A machine lacks siderolabs/tailscale in talos_extensions or talos_machine_schematics: without the extension it never joins the tailnet."
  }
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
