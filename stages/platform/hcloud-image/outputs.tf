output "hcloud_images" {
  description = "Id of the snapshot with Talos, by architecture."
  value       = { for architecture, image in data.hcloud_image.talos : architecture => tostring(image.id) }
}
