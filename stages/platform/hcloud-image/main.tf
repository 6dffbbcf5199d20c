# A project has no public image with Talos, and the API takes none: somebody makes a snapshot of a server's disk once,
# for each release and architecture, and gives it these labels (docs/hcloud.md). The newest one wins.
data "hcloud_images" "talos" {
  for_each = var.hcloud_architectures

  with_selector     = "os=talos,version=${var.talos_version}"
  with_architecture = [each.value]
  most_recent       = true

  lifecycle {
    postcondition {
      condition     = length(self.images) > 0
      error_message = "The project has no snapshot of Talos ${var.talos_version} for ${each.value}. Make it, with the project's token in HCLOUD_TOKEN: hcloud-upload-image upload --architecture ${each.value} --compression xz --labels os=talos,version=${var.talos_version} --image-url https://${var.talos_image_factory}/image/${var.talos_schematic_id}/${var.talos_version}/hcloud-${each.value == "arm" ? "arm64" : "amd64"}.raw.xz"
    }
  }
}
