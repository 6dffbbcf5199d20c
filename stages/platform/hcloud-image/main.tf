# A project has no public image with Talos: somebody makes a snapshot once, for each release and architecture, and
# gives it these labels (docs/hcloud.md). The newest one wins.
data "hcloud_image" "talos" {
  for_each = var.hcloud_architectures

  with_selector     = "os=talos,version=${var.talos_version}"
  with_architecture = each.value
  most_recent       = true
}
