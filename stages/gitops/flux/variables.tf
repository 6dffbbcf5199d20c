variable "flux_namespace" {
  description = "Namespace of Flux."
  type        = string
  default     = "flux-system"
}

variable "flux_chart_repository" {
  description = "Helm repository of the chart flux2."
  type        = string
  default     = "https://fluxcd-community.github.io/helm-charts"
}

variable "flux_chart_version" {
  description = "Version of the chart flux2; 2.18 is Flux 2.8."
  type        = string
  default     = "2.18.3"

  validation {
    condition     = can(regex("^[0-9]+\\.[0-9]+\\.[0-9]+$", var.flux_chart_version))
    error_message = "flux_chart_version is an exact version, such as 2.18.3."
  }
}

variable "flux_image_automation" {
  description = "Install the controllers that watch image registries and write to Git."
  type        = bool
  default     = false
}

variable "flux_values" {
  description = "Further values of the chart (YAML), applied last."
  type        = list(string)
  default     = []
}
