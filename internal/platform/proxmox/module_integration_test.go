//go:build integration

package proxmox

// module is a cluster's machines as castle's platform stage describes them.
const module = `
terraform {
  required_providers {
    proxmox = { source = "bpg/proxmox", version = "0.111.1" }
  }
}

provider "proxmox" {}

locals {
  nodes = {
    cp-01 = { vm_id = 421, address = "127.10.0.21" }
    cp-02 = { vm_id = 422, address = "127.10.0.22" }
    wk-01 = { vm_id = 431, address = "127.10.0.31" }
  }
}

resource "proxmox_virtual_environment_download_file" "image" {
  node_name           = "proxmox"
  datastore_id        = "local"
  content_type        = "import"
  file_name           = "blue-talos-v1.13.0.qcow2"
  url                 = "https://factory.talos.dev/image/abc/v1.13.0/nocloud-amd64.qcow2"
  overwrite           = false
  overwrite_unmanaged = true
}

resource "proxmox_virtual_environment_vm" "node" {
  for_each = local.nodes

  name      = "blue-${each.key}"
  node_name = "proxmox"
  vm_id     = each.value.vm_id
  tags      = ["blue", "castle"]
  on_boot   = true
  machine   = "q35"

  stop_on_destroy                      = true
  delete_unreferenced_disks_on_destroy = false
  reboot_after_update                  = false
  scsi_hardware                        = "virtio-scsi-single"

  smbios {
    uuid = uuidv5("oid", "our key/blue-${each.key}")
  }
  cpu {
    cores = 4
    type  = "x86-64-v2-AES"
  }
  memory { dedicated = 4096 }
  operating_system { type = "l26" }
  network_device {
    bridge = "vmbr0"
  }
  disk {
    datastore_id = "local-lvm"
    import_from  = proxmox_virtual_environment_download_file.image.id
    interface    = "scsi0"
    size         = 20
    iothread     = true
    discard      = "on"
  }
  disk {
    datastore_id = "local-lvm"
    interface    = "scsi1"
    size         = 50
    file_format  = "raw"
    iothread     = true
    discard      = "on"
  }
  initialization {
    datastore_id = "local-lvm"
    ip_config {
      ipv4 {
        address = "${each.value.address}/24"
        gateway = "127.10.0.1"
      }
    }
    dns { servers = ["127.10.0.1"] }
  }

  lifecycle {
    ignore_changes = [disk[0].import_from, smbios]
  }
}
`
