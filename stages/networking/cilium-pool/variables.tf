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

  validation {
    condition     = alltrue([for expression in var.cilium_pool_interfaces : expression != "" && can(regexall(expression, ""))])
    error_message = "An entry of cilium_pool_interfaces is a regular expression, such as ^eth[0-9]+."
  }
}

variable "cilium_bgp" {
  description = "Announces the addresses to routers by BGP, instead of to the nodes' own network on layer 2: the cluster's AS number, and the address and the AS number of each router, by a name. null: layer 2."
  type        = object({ local_asn = number, peers = map(object({ address = string, asn = number })) })
  default     = null

  validation {
    condition = var.cilium_bgp == null || alltrue([
      for asn in try(concat([var.cilium_bgp.local_asn], values(var.cilium_bgp.peers)[*].asn), []) :
      try(asn >= 1 && asn <= 4294967295 && floor(asn) == asn, false)
    ])
    error_message = "local_asn and asn in cilium_bgp are AS numbers: whole ones from 1 to 4294967295."
  }

  validation {
    condition     = var.cilium_bgp == null || try(length(var.cilium_bgp.peers) > 0, false)
    error_message = "cilium_bgp has at least one router in peers."
  }

  validation {
    condition = var.cilium_bgp == null || alltrue([
      for name, peer in try(var.cilium_bgp.peers, {}) :
      can(regex("^[a-z0-9]([a-z0-9-]*[a-z0-9])?$", name)) && can(cidrhost("${peer.address}/32", 0))
    ])
    error_message = "A router in peers of cilium_bgp has a name of lower-case letters, digits and inner hyphens, and an IP address."
  }
}

variable "cilium_bgp_password" {
  description = "Password of the sessions with all routers in cilium_bgp (TCP MD5). Set it in cluster.hcl: inputs = { cilium_bgp_password = secrets.cilium_bgp_password }. null: none."
  type        = string
  default     = null
  sensitive   = true

  validation {
    condition     = var.cilium_bgp_password == null || can(regex("^[!-~]{1,80}$", var.cilium_bgp_password))
    error_message = "The secret CILIUM_BGP_PASSWORD has 1 to 80 characters of ASCII, and no blank: the kernel takes no longer key for TCP MD5."
  }
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
