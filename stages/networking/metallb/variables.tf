variable "metallb_namespace" {
  description = "Namespace of MetalLB."
  type        = string
  default     = "metallb-system"
}

variable "metallb_chart_repository" {
  description = "Helm repository of the chart metallb."
  type        = string
  default     = "https://metallb.github.io/metallb"
}

variable "metallb_chart_version" {
  description = "Version of the chart metallb. In 0.16 a ready controller no longer means a listening webhook."
  type        = string
  default     = "0.15.3"

  validation {
    condition     = can(regex("^[0-9]+\\.[0-9]+\\.[0-9]+$", var.metallb_chart_version))
    error_message = "metallb_chart_version is an exact version, such as 0.15.3."
  }
}

variable "metallb_values" {
  description = "Further values of the chart (YAML), applied last."
  type        = list(string)
  default     = []
}
