variable "talos_extensions" {
  description = "Official system extensions of the machines, such as [\"siderolabs/iscsi-tools\", \"siderolabs/util-linux-tools\"]. The image factory makes the schematic of them, which counts instead of talos_schematic_id."
  type        = list(string)
  default     = []

  validation {
    condition     = alltrue([for name in var.talos_extensions : can(regex("^[a-z0-9-]+/[a-z0-9.-]+$", name))])
    error_message = "An extension in talos_extensions is called as in the image factory, such as siderolabs/iscsi-tools, without a version."
  }
}
