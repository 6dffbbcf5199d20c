variable "cilium_pool_addresses" {
  description = "Addresses that Services get: CIDRs, or ranges of IPv4 (192.168.1.240-192.168.1.249); with both IP families, a Service may get one of each. Keep them out of the router's DHCP range."
  type        = list(string)

  validation {
    condition     = length(var.cilium_pool_addresses) > 0
    error_message = "cilium_pool_addresses must not be empty."
  }

  validation {
    condition = alltrue([
      for entry in var.cilium_pool_addresses : can(cidrhost(entry, 0)) ||
      length(split("-", entry)) == 2 && alltrue([for end in split("-", entry) : can(cidrhost("${end}/32", 0)) && !can(regex(":", end))])
    ])
    error_message = "An entry of cilium_pool_addresses is a CIDR, or a range <first>-<last> of IPv4 addresses, without blanks."
  }
}

variable "cilium_pool_name" {
  description = "Name of the CiliumLoadBalancerIPPool and the CiliumL2AnnouncementPolicy."
  type        = string
  default     = "main-pool"
}

variable "cilium_pool_interfaces" {
  description = "Regular expressions of the network interfaces on which nodes announce addresses, such as ^eth[0-9]+. Empty: all."
  type        = list(string)
  default     = []
}

variable "cilium_pool_namespace" {
  description = "Cilium's namespace, which holds the leases of announced Services. castle wires it."
  type        = string
}

variable "cilium_pool_vip" {
  description = "Address of the Kubernetes API, which no pool may contain; null if it has only a name. castle wires it."
  type        = string
}

variable "cilium_pool_nodes" {
  description = "Addresses of the nodes by name, which no pool may contain. castle wires them."
  type        = map(string)
}
