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
    same machines. secondary_address, in network.secondary_subnet, is of the other IP family. With dhcp, the machine asks a DHCP server for its
    address, which is reserved there for its mac_address. A machine without an address has the one that the server gives it first:
    castle learns it from the guest agent, which the image needs (siderolabs/qemu-guest-agent), and holds it. node_name is the Proxmox node (proxmox_node_name by default). What a machine leaves open has the value of
    machine_defaults, else: cores 4, memory 8192 (MiB), system_disk 32 (GiB), cpu_type x86-64-v2-AES, machine_type q35, bios
    seabios, datastore_id proxmox_disk_datastore, bridge and vlan_id those of network. A node with longhorn_disk gets a disk of
    that size for Longhorn, as scsi1. disks are further ones by interface, scsi2 to scsi30; Talos finds scsi2 as
    /dev/disk/by-id/scsi-0QEMU_QEMU_HARDDISK_drive-scsi2. network_devices are further cards after net0: an address with its prefix length, and routes, gateways by the networks
    that are reached through them; one without an address
    is left to talos_config_patches. vlan_id 0 is none. memory_floating is what ballooning may take the memory down to. bios
    ovmf comes with an EFI disk, and tpm adds a TPM 2.0. pci and usb are devices by their resource mapping. image is a volume
    that the system disk is copied from instead of Talos' image: a file (local:import/golden.qcow2) or a template's disk
    (local-lvm:base-9000-disk-0). template is a VM template that the machine is cloned from instead, with Talos on scsi0: its vm_id,
    and its node_name if it is on another node; full = false makes a linked clone. ha makes the machine highly available: Proxmox starts it again, on another node if its own
    fails; enabled = false takes that of its role away.
  EOT
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
    condition     = length(distinct([for name, node in var.nodes : coalesce(node.address, name)])) == length(var.nodes)
    error_message = "Two nodes have the same address."
  }

  validation {
    condition     = alltrue([for node in var.nodes : node.address == null || can(cidrhost("${node.address}/32", 0))])
    error_message = "A node's address is an IPv4 or IPv6 address without a prefix length."
  }

  validation {
    condition = alltrue([
      for node in var.nodes : node.address == null || node.mac_address != null && !can(regex(":", node.address)) || !concat([
        for given in [node, lookup(var.machine_defaults, node.role, node), lookup(var.machine_defaults, "all", node)] :
        given.dhcp if given.dhcp != null
      ], [false])[0]
    ])
    error_message = "A node with dhcp has an IPv4 address and the mac_address that the DHCP server reserves it for, or no address: castle then learns the one that the server gives it."
  }

  validation {
    condition = alltrue([
      for node in var.nodes : node.address != null || concat([
        for given in [node, lookup(var.machine_defaults, node.role, node), lookup(var.machine_defaults, "all", node)] :
        given.dhcp if given.dhcp != null
      ], [true])[0]
    ])
    error_message = "A node without an address has dhcp = false: set its address, or leave dhcp out, so that a DHCP server gives it one."
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
    condition = alltrue([
      for node in var.nodes : node.secondary_address == null ||
      can(cidrhost("${node.secondary_address}/32", 0)) && can(regex(":", node.secondary_address)) != can(regex(":", node.address))
    ])
    error_message = "A node's secondary_address is an address of the other IP family than its address, without a prefix length."
  }

  validation {
    condition     = length(distinct(compact(values(var.nodes)[*].secondary_address))) == length(compact(values(var.nodes)[*].secondary_address))
    error_message = "Two nodes have the same secondary_address."
  }

  validation {
    condition = alltrue([
      for node in var.nodes : alltrue([
        coalesce(node.cores, 1) >= 1, coalesce(node.memory, 2048) >= 2048,
        coalesce(node.system_disk, 10) >= 10, coalesce(node.longhorn_disk, 10) >= 10,
      ])
    ])
    error_message = "A node has at least 1 core, 2048 MiB of memory and disks of 10 GiB: Talos does not run on less."
  }

  validation {
    condition = alltrue([
      for node in var.nodes : alltrue([
        for number in [
          coalesce(node.cores, 1), coalesce(node.memory, 1), coalesce(node.system_disk, 1), coalesce(node.longhorn_disk, 1),
          coalesce(node.memory_floating, 1),
        ] : floor(number) == number
      ])
    ])
    error_message = "A node's cores, memory and disks are whole numbers of cores, MiB and GiB: Proxmox takes no fractions."
  }

  validation {
    condition = alltrue([
      for node in var.nodes :
      can(regex("^[A-Za-z][A-Za-z0-9._-]*[A-Za-z0-9]$", coalesce(node.datastore_id, "local"))) &&
      can(regex("^[A-Za-z][A-Za-z0-9._-]*[A-Za-z0-9]$", coalesce(node.longhorn_datastore_id, "local"))) &&
      alltrue([for disk in coalesce(node.disks, {}) : can(regex("^[A-Za-z][A-Za-z0-9._-]*[A-Za-z0-9]$", coalesce(disk.datastore_id, "local")))])
    ])
    error_message = "A node's datastore_id is the id of a datastore, such as local-lvm: letters, digits, dots, hyphens and underscores."
  }

  validation {
    condition = alltrue([
      for node in var.nodes :
      can(regex("^[-_.A-Za-z0-9]+$", coalesce(node.bridge, "vmbr0"))) &&
      alltrue([for card in coalesce(node.network_devices, []) : can(regex("^[-_.A-Za-z0-9]+$", coalesce(card.bridge, "vmbr0")))])
    ])
    error_message = "A node's bridge is the name of a bridge of the Proxmox host, such as vmbr0."
  }

  validation {
    condition = alltrue([
      for node in var.nodes : alltrue([
        for vlan in concat([node.vlan_id], coalesce(node.network_devices, [])[*].vlan_id) :
        vlan == null || try(vlan >= 0 && vlan <= 4094 && floor(vlan) == vlan, false)
      ])
    ])
    error_message = "A node's vlan_id is a whole number from 1 to 4094; 0 is the bridge's own network."
  }

  validation {
    condition = alltrue([
      for node in var.nodes : alltrue([
        for mtu in concat([node.mtu], coalesce(node.network_devices, [])[*].mtu) :
        mtu == null || try(floor(mtu) == mtu && (mtu == 1 || mtu >= 576 && mtu <= 65520), false)
      ])
    ])
    error_message = "A node's mtu is a whole number from 576 to 65520, or 1, which is the bridge's own."
  }

  validation {
    condition = alltrue([
      for node in var.nodes : alltrue([
        for card in coalesce(node.network_devices, []) : card.address == null || can(cidrhost(card.address, 0))
      ])
    ])
    error_message = "The address of a further network device is an address with its prefix length, such as 10.0.20.5/24."
  }

  validation {
    condition = alltrue(flatten([
      for node in var.nodes : [
        for card in coalesce(node.network_devices, []) : [
          for network, gateway in coalesce(card.routes, {}) : try(
            cidrhost(network, 0) == split("/", network)[0] &&
            cidrhost("${gateway}/${split("/", card.address)[1]}", 0) == cidrhost(card.address, 0), false
          )
        ]
      ]
    ]))
    error_message = "routes of a network device are gateways in the network of its address, by the networks behind them: { \"10.0.0.0/8\" = \"10.0.20.1\" }."
  }

  validation {
    condition = alltrue([
      for node in var.nodes : alltrue([
        for interface, disk in coalesce(node.disks, {}) :
        can(regex("^scsi([2-9]|[12][0-9]|30)$", interface)) && disk.size >= 1 && floor(disk.size) == disk.size
      ])
    ])
    error_message = "disks have an interface from scsi2 to scsi30 (scsi0 is the system disk, scsi1 Longhorn's) and a size of whole GiB."
  }

  validation {
    condition = alltrue([
      for node in var.nodes :
      coalesce(node.cpu_units, 100) >= 1 && coalesce(node.cpu_units, 100) <= 10000 &&
      floor(coalesce(node.cpu_units, 100)) == coalesce(node.cpu_units, 100)
    ])
    error_message = "A node's cpu_units is a whole number from 1 to 10000; Proxmox' default is 100."
  }

  validation {
    condition = alltrue([
      for node in var.nodes :
      can(regex("^[A-Za-z0-9][A-Za-z0-9._-]*$", coalesce(node.cpu_type, "host"))) &&
      !can(regex("^(486|athlon|core2duo|coreduo|kvm32|kvm64|pentium[23]?|phenom|qemu32|qemu64|x86-64-v1)$", coalesce(node.cpu_type, "host")))
    ])
    error_message = "A node's cpu_type is one of Proxmox' that has x86-64-v2, such as x86-64-v2-AES or host: Talos does not start on an older one."
  }

  validation {
    condition     = alltrue([for node in var.nodes : contains(["ovmf", "seabios"], coalesce(node.bios, "seabios"))])
    error_message = "A node's bios is seabios or ovmf."
  }

  validation {
    condition = alltrue([
      for node in var.nodes :
      can(regex("^(pc|q35|pc-i440fx-[0-9.]+|pc-q35-[0-9.]+)$", coalesce(node.machine_type, "q35")))
    ])
    error_message = "A node's machine_type is q35 or pc, or one of a release such as pc-q35-9.2."
  }

  validation {
    condition = alltrue([
      for node in var.nodes : alltrue([
        for delay in try([node.startup.order, node.startup.up_delay, node.startup.down_delay], []) :
        delay == null || try(delay >= 0 && floor(delay) == delay, false)
      ])
    ])
    error_message = "order, up_delay and down_delay of a node's startup are whole numbers from 0."
  }

  validation {
    condition     = alltrue([for node in var.nodes : can(regex("^[A-Za-z][A-Za-z0-9._-]*:.+$", coalesce(node.image, "local:import/talos.qcow2")))])
    error_message = "A node's image is a volume of Proxmox, such as local:import/golden.qcow2 or local-lvm:base-9000-disk-0."
  }

  validation {
    condition = alltrue([
      for node in var.nodes :
      length(coalesce(node.pci, [])) <= 16 && length(coalesce(node.usb, [])) <= 4 && length(coalesce(node.network_devices, [])) <= 5
    ])
    error_message = "A machine has at most 16 devices in pci, 4 in usb and 5 in network_devices."
  }

  validation {
    condition = alltrue([
      for node in var.nodes : alltrue([
        for device in concat(coalesce(node.pci, [])[*].mapping, coalesce(node.usb, [])[*].mapping) :
        can(regex("^[A-Za-z][A-Za-z0-9_-]+$", device))
      ])
    ])
    error_message = "The mapping of a device in pci or usb is the name of a resource mapping of the datacenter: Datacenter > Resource Mappings."
  }

  validation {
    condition = alltrue([
      for node in var.nodes : alltrue([
        for tries in try([node.ha.max_restart, node.ha.max_relocate], []) :
        tries == null || try(tries >= 0 && tries <= 10 && floor(tries) == tries, false)
      ])
    ])
    error_message = "max_restart and max_relocate of a node's ha are whole numbers from 0 to 10."
  }

  validation {
    condition = alltrue([
      for node in var.nodes :
      node.template == null || try(node.template.vm_id >= 100 && floor(node.template.vm_id) == node.template.vm_id, false)
    ])
    error_message = "The template of a node has the VM id of one, a whole number from 100."
  }

  validation {
    condition = alltrue([
      for node in var.nodes : alltrue([
        for mac in concat([node.mac_address], coalesce(node.network_devices, [])[*].mac_address) :
        can(regex("^[0-9A-Fa-f][02468ACEace](:[0-9A-Fa-f]{2}){5}$", coalesce(mac, "BC:24:11:00:00:01")))
      ])
    ])
    error_message = "A node's mac_address is a unicast address such as BC:24:11:2A:3B:4C."
  }

  validation {
    condition = length(distinct(flatten([
      for node in var.nodes : [for mac in concat([node.mac_address], coalesce(node.network_devices, [])[*].mac_address) : lower(mac) if mac != null]
      ]))) == length(flatten([
      for node in var.nodes : [for mac in concat([node.mac_address], coalesce(node.network_devices, [])[*].mac_address) : mac if mac != null]
    ]))
    error_message = "Two cards have the same mac_address."
  }

  validation {
    condition = alltrue([
      for node in var.nodes : length([
        for given in [node, lookup(var.machine_defaults, node.role, node), lookup(var.machine_defaults, "all", node)] : given if given.template != null
        ]) == 0 || length([
        for given in [node, lookup(var.machine_defaults, node.role, node), lookup(var.machine_defaults, "all", node)] : given if given.image != null
      ]) == 0
    ])
    error_message = "A node has an image and a template, of its own, its role's or that of all: its system disk comes from one of them."
  }

  # These relate two values, each of which may be of the machine, of its role or of all.
  validation {
    condition = alltrue([
      for node in var.nodes : try(
        coalesce(node.memory_floating, lookup(var.machine_defaults, node.role, node).memory_floating, lookup(var.machine_defaults, "all", node).memory_floating, 0) <=
        coalesce(node.memory, lookup(var.machine_defaults, node.role, node).memory, lookup(var.machine_defaults, "all", node).memory, 8192), true
      )
    ])
    error_message = "A node's memory_floating is larger than its memory: ballooning only takes memory away."
  }

  validation {
    condition = alltrue([
      for node in var.nodes : try(
        !anytrue([
          for device in coalesce(node.pci, lookup(var.machine_defaults, node.role, node).pci, lookup(var.machine_defaults, "all", node).pci, []) :
          coalesce(device.pcie, true)
        ]) ||
        can(regex("q35", coalesce(node.machine_type, lookup(var.machine_defaults, node.role, node).machine_type, lookup(var.machine_defaults, "all", node).machine_type, "q35"))), true
      )
    ])
    error_message = "A node has a PCI Express device and no machine_type q35: set pcie = false for the device, or machine_type = \"q35\"."
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

  validation {
    condition = alltrue([
      for given in concat(values(var.nodes), values(var.machine_defaults)) : given.template == null || try(
        given.template.vm_id < var.vm_id_range.first || given.template.vm_id > var.vm_id_range.last, true
      )
    ])
    error_message = "A template's vm_id lies in vm_id_range: what stands there belongs to the cluster, and a template does not."
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
  description = <<-EOT
    Network of the machines: gateway, prefix length, Proxmox bridge, optional VLAN, name servers. secondary_subnet is a network of
    the other IP family, in which each machine has its secondary_address; without secondary_gateway, routers announce theirs.
  EOT
  type = object({
    gateway = string
    prefix  = optional(number, 24)
    bridge  = optional(string, "vmbr0")
    vlan_id = optional(number)
    dns     = optional(list(string), [])

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
      for node in var.nodes : (node.secondary_address == null) == (var.network.secondary_subnet == null)
    ])
    error_message = "Either all nodes have a secondary_address, and the network a secondary_subnet, or none: Kubernetes expects the same IP families of all."
  }

  validation {
    condition = alltrue([
      for node in var.nodes : node.secondary_address == null || var.network.secondary_subnet == null ||
      try(cidrhost("${node.secondary_address}/${split("/", var.network.secondary_subnet)[1]}", 0) == cidrhost(var.network.secondary_subnet, 0), false)
    ])
    error_message = "A node's secondary_address lies outside of network.secondary_subnet."
  }

  validation {
    condition = var.network.secondary_gateway == null || (
      can(cidrhost("${var.network.secondary_gateway}/32", 0)) && can(regex(":", var.network.secondary_gateway)) != can(regex(":", var.network.gateway))
    )
    error_message = "network.secondary_gateway is an address of the IP family of network.secondary_subnet."
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
      for node in var.nodes : node.address == null ||
      try(cidrhost("${node.address}/${var.network.prefix}", 0) == cidrhost("${var.network.gateway}/${var.network.prefix}", 0), false)
    ])
    error_message = "A node's address lies outside of the gateway's network."
  }

  validation {
    condition     = !can(regex(":", var.network.gateway)) || alltrue([for node in var.nodes : node.address != null])
    error_message = "A node has no address, and network.gateway is of IPv6: castle learns addresses of IPv4 alone. Set the node's address."
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
