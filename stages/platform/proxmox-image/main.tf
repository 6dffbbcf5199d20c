data "proxmox_datastores" "here" {
  node_name = local.hosts[0]
}

locals {
  # Proxmox nodes in use.
  hosts = sort(distinct([for node in var.nodes : coalesce(node.node_name, var.proxmox_node_name)]))

  # Machines that start from Talos' image, and from no image or template of their own. stage.hcl repeats this.
  machines = {
    for name, node in var.nodes : name => node if alltrue([
      for given in [node, lookup(var.machine_defaults, node.role, node), lookup(var.machine_defaults, "all", node)] :
      given.image == null && given.template == null
    ])
  }

  # On shared storage, all nodes see one file: one of them fetches it, and which one does not matter later.
  shared = anytrue([for d in data.proxmox_datastores.here.datastores : d.shared == true if d.id == var.proxmox_image_datastore])

  # The image of each machine: a file for each schematic, of each node that has a machine with it.
  images = {
    for name, node in local.machines : name => join("/", [
      local.shared ? var.proxmox_image_datastore : coalesce(node.node_name, var.proxmox_node_name),
      substr(local.schematic_ids[name], 0, 12),
    ])
  }

  # Machines that may have another image than the others of their node.
  own_schematic = {
    for name, node in local.machines : name => length(setintersection(keys(var.talos_machine_schematics), [name, node.role])) > 0
  }

  fetched = {
    for image in distinct(values(local.images)) : image => {
      host      = local.shared ? local.hosts[0] : split("/", image)[0]
      schematic = [for name, of in local.images : local.schematic_ids[name] if of == image][0]
    }
  }
}

# Proxmox fetches the image itself, once for each Proxmox node in use. The file is named after the
# cluster, so that two clusters on one host never share (and never delete) one another's.
resource "proxmox_virtual_environment_download_file" "talos" {
  for_each = local.fetched

  node_name    = each.value.host
  datastore_id = var.proxmox_image_datastore
  content_type = "import"
  file_name    = "${var.cluster_name}-talos-${var.talos_version}-${substr(each.value.schematic, 0, 12)}.qcow2"
  url          = "https://${var.talos_image_factory}/image/${each.value.schematic}/${var.talos_version}/nocloud-amd64.qcow2"

  # The factory rebuilds images and their size may differ: no reason to download one again.
  overwrite = false

  depends_on = [talos_image_factory_schematic.extensions]

  lifecycle {
    # The name says which image it is. An image that was taken over has no url in the state. The node that has
    # fetched a shared one may leave the cluster, and the others need it.
    ignore_changes = [url, node_name]
  }
}
