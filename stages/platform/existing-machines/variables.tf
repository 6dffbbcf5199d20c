variable "nodes" {
  description = <<-EOT
    The machines by name. role is controlplane or worker. Each runs Talos in maintenance mode at address, which a DHCP
    reservation or its kernel's arguments give it, now and after a reset. Talos is installed on install_disk, which is wiped;
    longhorn_disk is another disk, for Longhorn. Disks are named as in /dev or in /dev/disk/by-id. Talos adds secondary_address, in
    network.secondary_subnet, to the card that talos_uplink selects. That ends Talos' own use of DHCP, so it asks for an IPv4
    address there itself; with dhcp = false, it does not: the address is of the kernel's arguments or of the image's platform.
  EOT
  type = map(object({
    role          = string
    address       = string
    install_disk  = optional(string, "/dev/sda")
    longhorn_disk = optional(string)

    secondary_address = optional(string)
    dhcp              = optional(bool, true)
  }))

  validation {
    condition     = alltrue([for name in keys(var.nodes) : can(regex("^[a-z0-9]([a-z0-9-]*[a-z0-9])?$", name))])
    error_message = "A node's name consists of lower-case letters, digits and inner hyphens."
  }

  validation {
    condition     = alltrue([for node in var.nodes : contains(["controlplane", "worker"], node.role)])
    error_message = "A node's role is controlplane or worker."
  }

  validation {
    condition     = length([for node in var.nodes : node if node.role == "controlplane"]) % 2 == 1
    error_message = "The number of control planes must be odd: with an even one, etcd stands no more failures than with one machine less."
  }

  validation {
    condition     = length(distinct([for node in var.nodes : node.address])) == length(var.nodes)
    error_message = "Two nodes have the same address."
  }

  validation {
    condition     = alltrue([for node in var.nodes : can(cidrhost("${node.address}/32", 0))])
    error_message = "A node's address is an IPv4 or IPv6 address without a prefix length."
  }

  # castle compares addresses as texts.
  validation {
    condition = alltrue([
      for node in var.nodes : alltrue([
        for address in [node.address, node.secondary_address] :
        !can(regex(":", address)) || try(cidrhost("${address}/128", 0) == address, false)
      ])
    ])
    error_message = "A node's IPv6 address is written in lower case and in its shortest form, such as fd00:1::21."
  }

  validation {
    condition     = length(distinct(compact(values(var.nodes)[*].secondary_address))) == length(compact(values(var.nodes)[*].secondary_address))
    error_message = "Two nodes have the same secondary_address."
  }

  validation {
    condition     = alltrue([for node in var.nodes : can(regex("^/dev/[A-Za-z0-9/._:+-]+$", node.install_disk)) && can(regex("^/dev/[A-Za-z0-9/._:+-]+$", coalesce(node.longhorn_disk, "/dev/sdb")))])
    error_message = "A disk is named by its path, such as /dev/sda, /dev/nvme0n1 or /dev/disk/by-id/…; `talosctl get disks --insecure --nodes ADDRESS` lists those of a machine."
  }

  validation {
    condition     = alltrue([for node in var.nodes : node.longhorn_disk == null || node.longhorn_disk != node.install_disk])
    error_message = "A node's longhorn_disk is its install_disk: Talos needs that one for itself."
  }
}

variable "vip" {
  description = "Virtual address of the Kubernetes API. No machine has it; platform/talos gives it to the control planes. null: there is none, and platform/talos has an api_endpoint."
  type        = string
  default     = null

  validation {
    condition     = var.vip == null || can(cidrhost("${var.vip}/32", 0)) && (!can(regex(":", var.vip)) || try(cidrhost("${var.vip}/128", 0) == var.vip, false))
    error_message = "vip is an IPv4 or IPv6 address without a prefix length, in its shortest form."
  }

  validation {
    condition     = try(!contains([for node in var.nodes : node.address], var.vip), true)
    error_message = "vip must not be the address of a node."
  }

  validation {
    condition     = var.vip == null || try(cidrhost("${var.vip}/${var.network.prefix}", 0) == cidrhost("${var.network.gateway}/${var.network.prefix}", 0), false)
    error_message = "vip lies outside of the gateway's network: the control planes announce it there."
  }

  validation {
    condition     = var.vip != var.network.gateway
    error_message = "vip must not be the gateway's address."
  }
}

variable "network" {
  description = "Network that the machines are in: gateway and prefix length. They have their addresses from it already. secondary_subnet is one of the other IP family, in which a machine has an address, too, or gets its secondary_address; without secondary_gateway, routers announce theirs."
  type = object({
    gateway = string
    prefix  = optional(number, 24)

    secondary_subnet  = optional(string)
    secondary_gateway = optional(string)
  })

  validation {
    condition     = can(cidrhost("${var.network.gateway}/${var.network.prefix}", 0))
    error_message = "network.gateway is an IPv4 or IPv6 address and network.prefix a prefix length."
  }

  validation {
    condition     = !can(regex(":", var.network.gateway)) || var.network.prefix >= 48
    error_message = "network.prefix is that of an IPv6 network, such as 64; the default is one of IPv4."
  }

  validation {
    condition = var.network.secondary_subnet == null || (
      try(cidrhost(var.network.secondary_subnet, 0) == split("/", var.network.secondary_subnet)[0], false) &&
      can(regex(":", var.network.secondary_subnet)) != can(regex(":", var.network.gateway))
    )
    error_message = "network.secondary_subnet is a network of the other IP family than network.gateway, such as fd00:1::/64, in its shortest form."
  }

  validation {
    condition = alltrue([
      for node in var.nodes : node.secondary_address == null ||
      try(cidrhost("${node.secondary_address}/${split("/", var.network.secondary_subnet)[1]}", 0) == cidrhost(var.network.secondary_subnet, 0), false)
    ])
    error_message = "A node's secondary_address lies outside of network.secondary_subnet."
  }

  validation {
    condition = var.network.secondary_gateway == null || alltrue([
      can(cidrhost("${var.network.secondary_gateway}/32", 0)), can(regex(":", var.network.secondary_gateway)) != can(regex(":", var.network.gateway)),
      alltrue([for node in var.nodes : node.secondary_address != null]),
    ])
    error_message = "network.secondary_gateway is an address of the IP family of network.secondary_subnet, and of nodes that all have a secondary_address."
  }

  validation {
    condition = try(can(regex("^fe80:", var.network.secondary_gateway)) || alltrue([
      cidrhost("${var.network.secondary_gateway}/${split("/", var.network.secondary_subnet)[1]}", 0) == cidrhost(var.network.secondary_subnet, 0),
      !contains(values(var.nodes)[*].secondary_address, var.network.secondary_gateway),
    ]), true) # the validations above report the rest
    error_message = "network.secondary_gateway lies in network.secondary_subnet, or begins with fe80:, and no node has it."
  }

  validation {
    condition = alltrue([
      for node in var.nodes :
      try(cidrhost("${node.address}/${var.network.prefix}", 0) == cidrhost("${var.network.gateway}/${var.network.prefix}", 0), false)
    ])
    error_message = "A node's address lies outside of the gateway's network."
  }

  validation {
    condition     = !contains([for node in var.nodes : node.address], var.network.gateway)
    error_message = "A node has the gateway's address."
  }
}

variable "talos_platform" {
  description = "What the machines are to Talos: metal if they were booted from its ISO or by PXE, else the platform that their image was made for, such as nocloud."
  type        = string
  default     = "metal"

  validation {
    condition     = can(regex("^[a-z0-9-]+$", var.talos_platform))
    error_message = "talos_platform is one of the image factory's platforms, such as metal or nocloud."
  }
}

variable "talos_uplink" {
  description = <<-EOT
    Which card gets the VIP and a secondary_address, as a CEL expression that is true of exactly one of its links. The default is the
    only card with a cable; with several, choose one: link.driver == "igb", or mac(link.permanent_addr) == "00:1a:2b:3c:4d:5e".
  EOT
  type        = string
  default     = "link.type == 1 && link.kind == \"\" && link.link_state"
}
