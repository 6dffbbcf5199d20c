output "hcloud_images" {
  description = "Id of the snapshot with Talos, by architecture."
  value       = { for architecture, found in data.hcloud_images.talos : architecture => tostring(found.images[0].id) }
}
