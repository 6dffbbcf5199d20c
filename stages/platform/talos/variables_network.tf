variable "pod_subnets" {
  description = "Networks of Pods: one, or one for each IP family in the order of service_subnets. null: Talos' own, 10.244.0.0/16."
  type        = list(string)
  default     = null

  validation {
    condition = var.pod_subnets == null || try(
      contains([1, 2], length(var.pod_subnets)) && alltrue([for subnet in var.pod_subnets : can(cidrhost(subnet, 0))]) &&
      length(distinct([for subnet in var.pod_subnets : can(regex(":", subnet))])) == length(var.pod_subnets), false
    )
    error_message = "pod_subnets is one network, or one of IPv4 and one of IPv6, such as [\"10.244.0.0/16\", \"fd00:10:244::/56\"]."
  }
}

variable "service_subnets" {
  description = "Networks of Services: one, or one for each IP family, that of the machines' address first. null: Talos' own, 10.96.0.0/12."
  type        = list(string)
  default     = null

  validation {
    condition = var.service_subnets == null || try(
      contains([1, 2], length(var.service_subnets)) && alltrue([for subnet in var.service_subnets : can(cidrhost(subnet, 0))]) &&
      length(distinct([for subnet in var.service_subnets : can(regex(":", subnet))])) == length(var.service_subnets), false
    )
    error_message = "service_subnets is one network, or one of IPv4 and one of IPv6, such as [\"10.96.0.0/12\", \"fd00:10:96::/112\"]."
  }
}
