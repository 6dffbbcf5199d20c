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
    for node in distinct([for node in var.nodes : node.node_name != null ? node.node_name : var.proxmox_node_name]) :
    node => format("%s-talos-%s-%s.qcow2", var.cluster_name, var.talos_version, substr(
      length(var.talos_extensions) == 0 ? var.talos_schematic_id : sha256(format( # as in schematic.tf
        "customization:\n    systemExtensions:\n        officialExtensions:\n%s",
        join("", [for name in sort(distinct(var.talos_extensions)) : "            - ${name}\n"]),
      )), 0, 12))
  }
}
