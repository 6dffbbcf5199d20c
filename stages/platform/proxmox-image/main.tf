# Proxmox fetches the image itself, once for each Proxmox node in use. The file is named after the
# cluster, so that two clusters on one host never share (and never delete) one another's.
resource "proxmox_virtual_environment_download_file" "talos" {
  for_each = toset([for node in var.nodes : coalesce(node.node_name, var.proxmox_node_name)])

  node_name    = each.key
  datastore_id = var.proxmox_image_datastore
  content_type = "import"
  file_name    = "${var.cluster_name}-talos-${var.talos_version}-${substr(var.talos_schematic_id, 0, 12)}.qcow2"
  url          = "https://${var.talos_image_factory}/image/${var.talos_schematic_id}/${var.talos_version}/nocloud-amd64.qcow2"

  # The factory rebuilds images and their size may differ: no reason to download one again.
  overwrite = false

  lifecycle {
    # The name says which image it is. An image that was taken over has no url in the state.
    ignore_changes = [url]
  }
}
