variable "cluster_name" {
  description = "Name of the cluster; the image's file begins with it. castle wires it."
  type        = string

  validation {
    condition     = can(regex("^[a-z0-9]([a-z0-9-]*[a-z0-9])?$", var.cluster_name))
    error_message = "cluster_name consists of lower-case letters, digits and inner hyphens: it becomes host names and a Proxmox tag."
  }
}

variable "nodes" {
  description = "The machines by name, as platform/proxmox-machines explains them. node_name, image and template count here."
  type = map(object({
    role      = string
    vm_id     = number
    address   = optional(string)
    node_name = optional(string)

    secondary_address = optional(string)
    dhcp              = optional(bool)

    cores           = optional(number)
    cpu_type        = optional(string)
    cpu_units       = optional(number)
    numa            = optional(bool)
    memory          = optional(number)
    memory_floating = optional(number)
    machine_type    = optional(string)
    bios            = optional(string)
    tpm             = optional(bool)
    startup         = optional(object({ order = optional(number), up_delay = optional(number), down_delay = optional(number) }))

    image                 = optional(string)
    template              = optional(object({ vm_id = number, node_name = optional(string), full = optional(bool, true) }))
    datastore_id          = optional(string)
    system_disk           = optional(number)
    longhorn_disk         = optional(number)
    longhorn_datastore_id = optional(string)
    disks                 = optional(map(object({ size = number, datastore_id = optional(string) })))

    bridge      = optional(string)
    vlan_id     = optional(number)
    mac_address = optional(string)
    mtu         = optional(number)
    network_devices = optional(list(object({
      bridge      = optional(string)
      vlan_id     = optional(number)
      mac_address = optional(string)
      mtu         = optional(number)
      address     = optional(string)
      routes      = optional(map(string))
    })))

    pci = optional(list(object({ mapping = string, pcie = optional(bool), rombar = optional(bool), primary_gpu = optional(bool) })))
    usb = optional(list(object({ mapping = string, usb3 = optional(bool) })))

    ha = optional(object({ enabled = optional(bool, true), max_restart = optional(number), max_relocate = optional(number), failback = optional(bool) }))
  }))
}

variable "machine_defaults" {
  description = "What the machines have where nodes leaves it open, as platform/proxmox-machines explains it. image and template count here."
  type = map(object({
    cores           = optional(number)
    cpu_type        = optional(string)
    cpu_units       = optional(number)
    numa            = optional(bool)
    memory          = optional(number)
    memory_floating = optional(number)
    machine_type    = optional(string)
    bios            = optional(string)
    tpm             = optional(bool)
    startup         = optional(object({ order = optional(number), up_delay = optional(number), down_delay = optional(number) }))
    dhcp            = optional(bool)

    image                 = optional(string)
    template              = optional(object({ vm_id = number, node_name = optional(string), full = optional(bool, true) }))
    datastore_id          = optional(string)
    system_disk           = optional(number)
    longhorn_disk         = optional(number)
    longhorn_datastore_id = optional(string)
    disks                 = optional(map(object({ size = number, datastore_id = optional(string) })))

    bridge          = optional(string)
    vlan_id         = optional(number)
    mtu             = optional(number)
    network_devices = optional(list(object({ bridge = optional(string), vlan_id = optional(number), mtu = optional(number) })))

    pci = optional(list(object({ mapping = string, pcie = optional(bool), rombar = optional(bool), primary_gpu = optional(bool) })))
    usb = optional(list(object({ mapping = string, usb3 = optional(bool) })))

    ha = optional(object({ enabled = optional(bool, true), max_restart = optional(number), max_relocate = optional(number), failback = optional(bool) }))
  }))
  default = {}
}

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

variable "proxmox_image_datastore" {
  description = "Datastore that Proxmox downloads Talos' image to. Its content types must include import."
  type        = string
  default     = "local"

  validation {
    condition     = can(regex("^[A-Za-z][A-Za-z0-9._-]*[A-Za-z0-9]$", var.proxmox_image_datastore))
    error_message = "proxmox_image_datastore is the id of a datastore, such as local-lvm: letters, digits, dots, hyphens and underscores."
  }
}

variable "talos_version" {
  description = "Talos release that the machines run, such as v1.13.0."
  type        = string
  default     = "v1.13.0"

  validation {
    condition     = can(regex("^v[0-9]+\\.[0-9]+\\.[0-9]+$", var.talos_version))
    error_message = "talos_version is a release such as v1.13.0."
  }
}

variable "talos_image_factory" {
  description = "Host name of the image factory that makes disk images and installers."
  type        = string
  default     = "factory.talos.dev"

  validation {
    condition     = can(regex("^[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?(:[0-9]+)?$", var.talos_image_factory))
    error_message = "talos_image_factory is a host name, such as factory.talos.dev, without https:// and without a path."
  }
}

variable "talos_schematic_id" {
  description = "The image factory's id of a schematic. The default is that of siderolabs/iscsi-tools and siderolabs/util-linux-tools, which Longhorn needs."
  type        = string
  default     = "613e1592b2da41ae5e265e8789429f22e121aab91cb4deb6bc3c0b6262961245"

  validation {
    condition     = can(regex("^[0-9a-f]{64}$", var.talos_schematic_id))
    error_message = "talos_schematic_id has 64 hexadecimal digits."
  }
}
