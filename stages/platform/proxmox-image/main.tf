data "proxmox_datastores" "here" {
  node_name = local.hosts[0]
}

locals {
  # Proxmox nodes in use.
  hosts = sort(distinct([for node in var.nodes : coalesce(node.node_name, var.proxmox_node_name)]))

  # On shared storage, all nodes see one file: one of them fetches it, and which one does not matter later.
  shared  = anytrue([for d in data.proxmox_datastores.here.datastores : d.shared == true if d.id == var.proxmox_image_datastore])
  fetched = local.shared ? { (var.proxmox_image_datastore) = local.hosts[0] } : { for host in local.hosts : host => host }
}

# Proxmox fetches the image itself, once for each Proxmox node in use. The file is named after the
# cluster, so that two clusters on one host never share (and never delete) one another's.
resource "proxmox_virtual_environment_download_file" "talos" {
  for_each = local.fetched

  node_name    = each.value
  datastore_id = var.proxmox_image_datastore
  content_type = "import"
  file_name    = "${var.cluster_name}-talos-${var.talos_version}-${substr(local.schematic_id, 0, 12)}.qcow2"
  url          = "https://${var.talos_image_factory}/image/${local.schematic_id}/${var.talos_version}/nocloud-amd64.qcow2"

  # The factory rebuilds images and their size may differ: no reason to download one again.
  overwrite = false

  depends_on = [talos_image_factory_schematic.extensions]

  lifecycle {
    # The name says which image it is. An image that was taken over has no url in the state. The node that has
    # fetched a shared one may leave the cluster, and the others need it.
    ignore_changes = [url, node_name]
  }
}
