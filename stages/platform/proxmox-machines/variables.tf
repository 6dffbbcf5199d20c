variable "cluster_name" {
  description = "Name of the cluster; VMs and Kubernetes nodes are called <cluster_name>-<node>. castle wires it."
  type        = string

  validation {
    condition     = can(regex("^[a-z0-9]([a-z0-9-]*[a-z0-9])?$", var.cluster_name))
    error_message = "cluster_name consists of lower-case letters, digits and inner hyphens: it becomes host names and a Proxmox tag."
  }
}

variable "nodes" {
  description = <<-EOT
    The machines by name. role is controlplane or worker; vm_id and address are fixed, so a cluster is always built from the
    same machines. node_name is the Proxmox node (proxmox_node_name by default), memory is in MiB, disks are in GiB; a node
    with longhorn_disk gets a second disk of that size for Longhorn.
  EOT
  type = map(object({
    role          = string
    vm_id         = number
    address       = string
    node_name     = optional(string)
    cores         = optional(number, 4)
    memory        = optional(number, 8192)
    system_disk   = optional(number, 32)
    longhorn_disk = optional(number)
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
    condition     = length(distinct([for node in var.nodes : node.vm_id])) == length(var.nodes)
    error_message = "Two nodes have the same vm_id."
  }

  validation {
    condition     = alltrue([for node in var.nodes : node.vm_id >= 100 && node.vm_id <= 999999999 && floor(node.vm_id) == node.vm_id])
    error_message = "A vm_id is a whole number from 100 to 999999999: Proxmox keeps those below 100."
  }

  validation {
    condition     = length(distinct([for node in var.nodes : node.address])) == length(var.nodes)
    error_message = "Two nodes have the same address."
  }

  validation {
    condition     = alltrue([for node in var.nodes : can(cidrhost("${node.address}/32", 0))])
    error_message = "A node's address is an IPv4 address without a prefix length."
  }

  validation {
    condition = alltrue([
      for node in var.nodes : node.cores >= 1 && node.memory >= 2048 && node.system_disk >= 10 && coalesce(node.longhorn_disk, 10) >= 10
    ])
    error_message = "A node has at least 1 core, 2048 MiB of memory and disks of 10 GiB: Talos does not run on less."
  }

  validation {
    condition = alltrue([
      for node in var.nodes : alltrue([
        for number in [node.cores, node.memory, node.system_disk, coalesce(node.longhorn_disk, 10)] : floor(number) == number
      ])
    ])
    error_message = "A node's cores, memory and disks are whole numbers of cores, MiB and GiB: Proxmox takes no fractions."
  }
}

variable "vm_id_range" {
  description = "VM ids that belong to this cluster: every node's id lies in it. What else stands there is not touched."
  type        = object({ first = number, last = number })

  validation {
    condition     = var.vm_id_range.first <= var.vm_id_range.last
    error_message = "vm_id_range runs from first to last."
  }

  validation {
    condition     = alltrue([for end in [var.vm_id_range.first, var.vm_id_range.last] : floor(end) == end])
    error_message = "The ends of vm_id_range are whole numbers."
  }

  validation {
    condition     = alltrue([for node in var.nodes : node.vm_id >= var.vm_id_range.first && node.vm_id <= var.vm_id_range.last])
    error_message = "A node's vm_id lies outside of vm_id_range."
  }
}

variable "vip" {
  description = "Virtual address of the Kubernetes API. No machine has it; platform/talos gives it to the control planes."
  type        = string

  validation {
    condition     = can(cidrhost("${var.vip}/32", 0))
    error_message = "vip is an IPv4 address without a prefix length."
  }

  validation {
    condition     = !contains([for node in var.nodes : node.address], var.vip)
    error_message = "vip must not be the address of a node."
  }

  validation {
    condition     = try(cidrhost("${var.vip}/${var.network.prefix}", 0) == cidrhost("${var.network.gateway}/${var.network.prefix}", 0), false)
    error_message = "vip lies outside of the gateway's network: the control planes announce it there."
  }

  validation {
    condition     = var.vip != var.network.gateway
    error_message = "vip must not be the gateway's address."
  }
}

variable "network" {
  description = "Network of the machines: gateway, prefix length, Proxmox bridge, optional VLAN, name servers."
  type = object({
    gateway = string
    prefix  = optional(number, 24)
    bridge  = optional(string, "vmbr0")
    vlan_id = optional(number)
    dns     = optional(list(string), [])
  })

  validation {
    condition     = can(cidrhost("${var.network.gateway}/${var.network.prefix}", 0))
    error_message = "network.gateway is an IPv4 address and network.prefix a prefix length."
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

  validation {
    condition     = can(regex("^[-_.A-Za-z0-9]+$", var.network.bridge))
    error_message = "network.bridge is the name of a bridge of the Proxmox host, such as vmbr0."
  }

  validation {
    condition     = var.network.vlan_id == null || try(var.network.vlan_id >= 1 && var.network.vlan_id <= 4094 && floor(var.network.vlan_id) == var.network.vlan_id, false)
    error_message = "network.vlan_id is a whole number from 1 to 4094; without it, the machines are in the bridge's own network."
  }

  validation {
    condition     = alltrue([for server in var.network.dns : can(cidrhost("${server}/32", 0)) || can(regex("^[0-9A-Fa-f]*:[0-9A-Fa-f:.]+$", server))])
    error_message = "An entry of network.dns is an IP address: the machines cannot look up the name of a name server."
  }
}
