output "talos_images" {
  description = "Volume id of Talos' image, by the Proxmox node that has it."
  value       = { for node, image in proxmox_virtual_environment_download_file.talos : node => image.id }
}
