stage {
  summary = "Fetches Talos' image to Proxmox"

  inputs = {
    cluster_name      = cluster.name
    proxmox_api_token = secrets.proxmox_api_token
  }
}

# Nothing is built yet when the storage cannot take the image. An image that is there already is
# taken over, so the names here are those of main.tf.
preflight "proxmox_storage" "image" {
  endpoint  = var.proxmox_endpoint
  api_token = var.proxmox_api_token
  ca_file   = var.proxmox_ca_file
  insecure  = var.proxmox_insecure
  storage   = var.proxmox_image_datastore
  content   = "import"
  resource  = "proxmox_virtual_environment_download_file.talos"

  shared_key = var.proxmox_image_datastore

  files = {
    for image in distinct([
      for name, node in var.nodes : {
        host = node.node_name != null ? node.node_name : var.proxmox_node_name
        schematic = compact(concat( # as in schematic.tf
          [for key in [name, node.role] : lookup(var.talos_machine_schematics, key, { extensions = [], id = null }).id],
          [for extensions in [sort(distinct(concat(var.talos_extensions, flatten([
            for key, given in var.talos_machine_schematics : given.extensions if contains([node.role, name], key)
            ]))))] : length(extensions) == 0 ? var.talos_schematic_id : sha256(format(
            "customization:\n    systemExtensions:\n        officialExtensions:\n%s",
            join("", [for extension in extensions : "            - ${extension}\n"]),
          ))],
        ))[0]
        } if length([ # as in main.tf
          for given in [node, lookup(var.machine_defaults, node.role, node), lookup(var.machine_defaults, "all", node)] : given
          if given.image != null || given.template != null
      ]) == 0
    ]) : "${image.host}/${substr(image.schematic, 0, 12)}" =>
    format("%s-talos-%s-%s.qcow2", var.cluster_name, var.talos_version, substr(image.schematic, 0, 12))
  }
}
