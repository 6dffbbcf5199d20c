# No secret belongs here: they are in Infisical, in the folder
# /ephemeral-castle/golden/proxmox. Lines that end in CHANGE are placeholders.

infisical_project_id  = "8f3c1d52-6a0e-4b7f-9d21-5e4c7a90b6d3" # CHANGE: Project settings, "Copy project id"
infisical_environment = "prod"

proxmox_endpoint        = "https://192.168.1.10:8006/" # CHANGE: the host's address
proxmox_node_name       = "pve1"
proxmox_pool            = "golden" # must exist: pveum pool add golden
proxmox_image_datastore = "local"
proxmox_disk_datastore  = "nfs" # of all nodes: a machine moves without its disks

proxmox_separate_controlplanes = true

network = {
  gateway = "192.168.1.1"
  dns     = ["192.168.1.1"]
}

# Beside the other clusters: ids, addresses and pool are its own.
vip         = "192.168.1.110"
vm_id_range = { first = 521, last = 526 }

machine_defaults = {
  all = {
    cores       = 2
    memory      = 4096
    system_disk = 24
    ha          = { max_restart = 2, max_relocate = 3, failback = false }
  }
  controlplane = {
    template = { vm_id = 9000, node_name = "pve1", full = true } # qm template 9000: a VM whose scsi0 has Talos
    ha       = { enabled = true }
  }
}

nodes = {
  cp-01     = { role = "controlplane", vm_id = 521, address = "192.168.1.111" }
  cp-02     = { role = "controlplane", vm_id = 522, address = "192.168.1.112", node_name = "pve2" }
  cp-03     = { role = "controlplane", vm_id = 523, address = "192.168.1.113", node_name = "pve3" }
  worker-01 = { role = "worker", vm_id = 524, address = "192.168.1.114", node_name = "pve2", ha = { max_restart = 1, max_relocate = 0, failback = true }, template = { vm_id = 9000, node_name = "pve1", full = false }, system_disk = 20 }
  worker-02 = { role = "worker", vm_id = 525, address = "192.168.1.115", datastore_id = "local-lvm", ha = { enabled = false } }
}
