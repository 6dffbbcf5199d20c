variable "proxmox_endpoint" {
  description = "Address of the Proxmox API, such as https://192.168.1.10:8006/."
  type        = string

  validation {
    condition     = can(regex("^https://[^/]+/?$", var.proxmox_endpoint))
    error_message = "proxmox_endpoint is a https:// address without a path."
  }
}

variable "proxmox_api_token" {
  description = "API token, <user>@<realm>!<name>=<secret>. castle wires it from the secrets layer."
  type        = string
  sensitive   = true

  validation {
    condition     = can(regex("^[^@]+@[^!]+![^=]+=.+$", var.proxmox_api_token))
    error_message = "proxmox_api_token has the form <user>@<realm>!<name>=<secret>: look at PROXMOX_TOKEN_ID and PROXMOX_TOKEN_SECRET."
  }
}

variable "proxmox_ca_file" {
  description = "PEM file with the CA of the Proxmox API, for castle's preflight. The provider reads SSL_CERT_FILE or the system's store instead."
  type        = string
  default     = null
}

variable "proxmox_insecure" {
  description = "Do not verify the Proxmox API's certificate. Use it only if its CA is not available."
  type        = bool
  default     = false

  validation {
    condition     = !(var.proxmox_insecure && var.proxmox_ca_file != null)
    error_message = "proxmox_insecure and proxmox_ca_file contradict each other."
  }
}

variable "proxmox_node_name" {
  description = "Proxmox node on which the machines run that name none."
  type        = string
  default     = "proxmox"

  validation {
    condition     = can(regex("^[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?$", var.proxmox_node_name))
    error_message = "proxmox_node_name is the name of a node as the tree in Proxmox' web interface shows it, such as pve."
  }
}

variable "proxmox_pool" {
  description = "Pool that the machines are put into, which exists already. An API token that is limited to it cannot change other machines."
  type        = string
  default     = null
}

variable "proxmox_separate_controlplanes" {
  description = "A rule of high availability keeps the control planes on different Proxmox nodes. It needs Proxmox VE 9."
  type        = bool
  default     = false

  validation {
    condition     = !var.proxmox_separate_controlplanes || length([for node in var.nodes : node if node.role == "controlplane"]) > 1
    error_message = "proxmox_separate_controlplanes needs three control planes: there is nothing to separate a single one from."
  }

  validation {
    condition = !var.proxmox_separate_controlplanes || alltrue([
      for node in var.nodes : node.role == "worker" || concat([
        for given in [node, lookup(var.machine_defaults, node.role, node), lookup(var.machine_defaults, "all", node)] :
        given.ha.enabled if given.ha != null
      ], [false])[0]
    ])
    error_message = "proxmox_separate_controlplanes needs control planes that are highly available: set machine_defaults = { controlplane = { ha = {} } }."
  }

  validation {
    condition = !var.proxmox_separate_controlplanes || length(distinct([
      for node in var.nodes : coalesce(node.node_name, var.proxmox_node_name) if node.role == "controlplane"
    ])) == length([for node in var.nodes : node if node.role == "controlplane"])
    error_message = "proxmox_separate_controlplanes needs control planes on different Proxmox nodes: two have the same node_name, and high availability would move one away."
  }
}

variable "proxmox_disk_datastore" {
  description = "Datastore of the machines' disks."
  type        = string
  default     = "local-lvm"

  validation {
    condition     = can(regex("^[A-Za-z][A-Za-z0-9._-]*[A-Za-z0-9]$", var.proxmox_disk_datastore))
    error_message = "proxmox_disk_datastore is the id of a datastore, such as local-lvm: letters, digits, dots, hyphens and underscores."
  }
}

variable "talos_images" {
  description = "Volume id of Talos' image, by machine or, as node/<name>, by Proxmox node. castle wires it from platform/proxmox-image."
  type        = map(string)
}

variable "serviceaccount_public_key_pem" {
  description = "Key that verifies ServiceAccount tokens. No other cluster has it, so the machines' UUIDs are derived from it. castle wires it from the secrets layer."
  type        = string
}
