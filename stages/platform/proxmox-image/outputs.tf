output "talos_images" {
  description = "Volume id of Talos' image, by the Proxmox node that has it."
  value = {
    for host in local.hosts : host => proxmox_virtual_environment_download_file.talos[local.shared ? var.proxmox_image_datastore : host].id
  }
}
