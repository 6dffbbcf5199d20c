variable "machine_defaults" {
  description = <<-EOT
    What the machines have where nodes leaves it open: the values of the role, controlplane or worker, then those of all. The
    attributes are those of nodes, which explains them, except for what belongs to one machine.
  EOT
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

  validation {
    condition     = alltrue([for key in keys(var.machine_defaults) : contains(["all", "controlplane", "worker"], key)])
    error_message = "A key of machine_defaults is all, controlplane or worker. A machine's own values stand in nodes."
  }

  validation {
    condition = alltrue([
      for machine in values(var.machine_defaults) : alltrue([
        coalesce(machine.cores, 1) >= 1, coalesce(machine.memory, 2048) >= 2048,
        coalesce(machine.system_disk, 10) >= 10, coalesce(machine.longhorn_disk, 10) >= 10,
      ])
    ])
    error_message = "A machine has at least 1 core, 2048 MiB of memory and disks of 10 GiB: Talos does not run on less."
  }

  validation {
    condition = alltrue([
      for machine in values(var.machine_defaults) : alltrue([
        for number in [
          coalesce(machine.cores, 1), coalesce(machine.memory, 1), coalesce(machine.system_disk, 1), coalesce(machine.longhorn_disk, 1),
          coalesce(machine.memory_floating, 1),
        ] : floor(number) == number
      ])
    ])
    error_message = "cores, memory and disks in machine_defaults are whole numbers of cores, MiB and GiB: Proxmox takes no fractions."
  }

  validation {
    condition = alltrue([
      for machine in values(var.machine_defaults) :
      can(regex("^[A-Za-z][A-Za-z0-9._-]*[A-Za-z0-9]$", coalesce(machine.datastore_id, "local"))) &&
      can(regex("^[A-Za-z][A-Za-z0-9._-]*[A-Za-z0-9]$", coalesce(machine.longhorn_datastore_id, "local"))) &&
      alltrue([for disk in coalesce(machine.disks, {}) : can(regex("^[A-Za-z][A-Za-z0-9._-]*[A-Za-z0-9]$", coalesce(disk.datastore_id, "local")))])
    ])
    error_message = "A machine's datastore_id is the id of a datastore, such as local-lvm: letters, digits, dots, hyphens and underscores."
  }

  validation {
    condition = alltrue([
      for machine in values(var.machine_defaults) :
      can(regex("^[-_.A-Za-z0-9]+$", coalesce(machine.bridge, "vmbr0"))) &&
      alltrue([for card in coalesce(machine.network_devices, []) : can(regex("^[-_.A-Za-z0-9]+$", coalesce(card.bridge, "vmbr0")))])
    ])
    error_message = "A machine's bridge is the name of a bridge of the Proxmox host, such as vmbr0."
  }

  validation {
    condition = alltrue([
      for machine in values(var.machine_defaults) : alltrue([
        for vlan in concat([machine.vlan_id], coalesce(machine.network_devices, [])[*].vlan_id) :
        vlan == null || try(vlan >= 0 && vlan <= 4094 && floor(vlan) == vlan, false)
      ])
    ])
    error_message = "A machine's vlan_id is a whole number from 1 to 4094; 0 is the bridge's own network."
  }

  validation {
    condition = alltrue([
      for machine in values(var.machine_defaults) : alltrue([
        for mtu in concat([machine.mtu], coalesce(machine.network_devices, [])[*].mtu) :
        mtu == null || try(floor(mtu) == mtu && (mtu == 1 || mtu >= 576 && mtu <= 65520), false)
      ])
    ])
    error_message = "A machine's mtu is a whole number from 576 to 65520, or 1, which is the bridge's own."
  }

  validation {
    condition = alltrue([
      for machine in values(var.machine_defaults) : alltrue([
        for interface, disk in coalesce(machine.disks, {}) :
        can(regex("^scsi([2-9]|[12][0-9]|30)$", interface)) && disk.size >= 1 && floor(disk.size) == disk.size
      ])
    ])
    error_message = "disks have an interface from scsi2 to scsi30 (scsi0 is the system disk, scsi1 Longhorn's) and a size of whole GiB."
  }

  validation {
    condition = alltrue([
      for machine in values(var.machine_defaults) :
      coalesce(machine.cpu_units, 100) >= 1 && coalesce(machine.cpu_units, 100) <= 10000 &&
      floor(coalesce(machine.cpu_units, 100)) == coalesce(machine.cpu_units, 100)
    ])
    error_message = "A machine's cpu_units is a whole number from 1 to 10000; Proxmox' default is 100."
  }

  validation {
    condition = alltrue([
      for machine in values(var.machine_defaults) :
      can(regex("^[A-Za-z0-9][A-Za-z0-9._-]*$", coalesce(machine.cpu_type, "host"))) &&
      !can(regex("^(486|athlon|core2duo|coreduo|kvm32|kvm64|pentium[23]?|phenom|qemu32|qemu64|x86-64-v1)$", coalesce(machine.cpu_type, "host")))
    ])
    error_message = "A machine's cpu_type is one of Proxmox' that has x86-64-v2, such as x86-64-v2-AES or host: Talos does not start on an older one."
  }

  validation {
    condition     = alltrue([for machine in values(var.machine_defaults) : contains(["ovmf", "seabios"], coalesce(machine.bios, "seabios"))])
    error_message = "A machine's bios is seabios or ovmf."
  }

  validation {
    condition = alltrue([
      for machine in values(var.machine_defaults) :
      can(regex("^(pc|q35|pc-i440fx-[0-9.]+|pc-q35-[0-9.]+)$", coalesce(machine.machine_type, "q35")))
    ])
    error_message = "A machine's machine_type is q35 or pc, or one of a release such as pc-q35-9.2."
  }

  validation {
    condition = alltrue([
      for machine in values(var.machine_defaults) : alltrue([
        for delay in try([machine.startup.order, machine.startup.up_delay, machine.startup.down_delay], []) :
        delay == null || try(delay >= 0 && floor(delay) == delay, false)
      ])
    ])
    error_message = "order, up_delay and down_delay of a machine's startup are whole numbers from 0."
  }

  validation {
    condition     = alltrue([for machine in values(var.machine_defaults) : can(regex("^[A-Za-z][A-Za-z0-9._-]*:.+$", coalesce(machine.image, "local:import/talos.qcow2")))])
    error_message = "A machine's image is a volume of Proxmox, such as local:import/golden.qcow2 or local-lvm:base-9000-disk-0."
  }

  validation {
    condition = alltrue([
      for machine in values(var.machine_defaults) :
      length(coalesce(machine.pci, [])) <= 16 && length(coalesce(machine.usb, [])) <= 4 && length(coalesce(machine.network_devices, [])) <= 5
    ])
    error_message = "A machine has at most 16 devices in pci, 4 in usb and 5 in network_devices."
  }

  validation {
    condition = alltrue([
      for machine in values(var.machine_defaults) : alltrue([
        for device in concat(coalesce(machine.pci, [])[*].mapping, coalesce(machine.usb, [])[*].mapping) :
        can(regex("^[A-Za-z][A-Za-z0-9_-]+$", device))
      ])
    ])
    error_message = "The mapping of a device in pci or usb is the name of a resource mapping of the datacenter: Datacenter > Resource Mappings."
  }

  validation {
    condition = alltrue([
      for machine in values(var.machine_defaults) : alltrue([
        for tries in try([machine.ha.max_restart, machine.ha.max_relocate], []) :
        tries == null || try(tries >= 0 && tries <= 10 && floor(tries) == tries, false)
      ])
    ])
    error_message = "max_restart and max_relocate of a machine's ha are whole numbers from 0 to 10."
  }

  validation {
    condition = alltrue([
      for machine in values(var.machine_defaults) :
      machine.template == null || try(machine.template.vm_id >= 100 && floor(machine.template.vm_id) == machine.template.vm_id, false)
    ])
    error_message = "The template of a machine has the VM id of one, a whole number from 100."
  }
}
