variable "talos_machine_config_patches" {
  description = "Further machine configuration patches (YAML) of single machines, by their names, applied last."
  type        = map(list(string))
  default     = {}

  validation {
    condition     = alltrue([for name in keys(var.talos_machine_config_patches) : contains(keys(var.machines), name)])
    error_message = "talos_machine_config_patches names a machine that nodes does not have. Its keys are names such as worker-01."
  }
}
