output "talos_images" {
  description = "Volume id of Talos' image, by machine."
  value       = { for name, image in local.images : name => proxmox_virtual_environment_download_file.talos[image].id }
}
