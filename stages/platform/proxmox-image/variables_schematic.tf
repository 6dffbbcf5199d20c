variable "talos_extensions" {
  description = "Official system extensions of the machines, such as [\"siderolabs/iscsi-tools\", \"siderolabs/util-linux-tools\"]. The image factory makes the schematic of them, which counts instead of talos_schematic_id."
  type        = list(string)
  default     = []

  validation {
    condition     = alltrue([for name in var.talos_extensions : can(regex("^[a-z0-9-]+/[a-z0-9.-]+$", name))])
    error_message = "An extension in talos_extensions is called as in the image factory, such as siderolabs/iscsi-tools, without a version."
  }
}

variable "talos_machine_schematics" {
  description = <<-EOT
    What single machines have in their images, by role (controlplane, worker) or by a machine's name: extensions beside
    talos_extensions, or the id of a schematic instead of them. { worker = { extensions = ["siderolabs/qemu-guest-agent"] } }.
  EOT
  type = map(object({
    extensions = optional(list(string), [])
    id         = optional(string)
  }))
  default = {}

  validation {
    condition     = alltrue([for key in keys(var.talos_machine_schematics) : contains(concat(["controlplane", "worker"], keys(var.nodes)), key)])
    error_message = "talos_machine_schematics has a key that is neither a role (controlplane, worker) nor the name of a machine."
  }

  validation {
    condition     = alltrue([for name in flatten(values(var.talos_machine_schematics)[*].extensions) : can(regex("^[a-z0-9-]+/[a-z0-9.-]+$", name))])
    error_message = "An extension in talos_machine_schematics is called as in the image factory, such as siderolabs/iscsi-tools, without a version."
  }

  validation {
    condition     = alltrue([for id in compact(values(var.talos_machine_schematics)[*].id) : can(regex("^[0-9a-f]{64}$", id))])
    error_message = "The id of a schematic in talos_machine_schematics has 64 hexadecimal digits."
  }

  # Whatever else a machine starts from, and the id of a schematic, may have it.
  validation {
    condition = alltrue([
      for name, machine in var.nodes : machine.address != null ||
      length([for given in [machine, lookup(var.machine_defaults, machine.role, machine), lookup(var.machine_defaults, "all", machine)] : given if given.image != null || given.template != null]) > 0 ||
      contains(concat(var.talos_extensions, flatten([
        for key, given in var.talos_machine_schematics : given.id != null ? ["siderolabs/qemu-guest-agent"] : given.extensions if contains([machine.role, name], key)
      ])), "siderolabs/qemu-guest-agent") ||
      length(var.talos_extensions) == 0 && var.talos_schematic_id != "613e1592b2da41ae5e265e8789429f22e121aab91cb4deb6bc3c0b6262961245"
    ])
    error_message = "A machine without an address has no siderolabs/qemu-guest-agent in talos_extensions: without it, nobody learns the address that a DHCP server gives it."
  }

  # The id of a schematic says which extensions there are.
  validation {
    condition = alltrue([
      for name, machine in var.nodes : length(flatten([
        for key, given in var.talos_machine_schematics : given.extensions if contains([machine.role, name], key)
        ])) == 0 || length(compact([
        for key, given in var.talos_machine_schematics : given.id if contains([machine.role, name], key)
      ])) == 0
    ])
    error_message = "A machine has both extensions and the id of a schematic in talos_machine_schematics, of its role or its own. The id says which extensions there are: remove one of them."
  }
}
