output "talos_images" {
  description = "Volume id of Talos' image: by Proxmox node, as node/<name>, and by machine for those in talos_machine_schematics."
  # A further machine on a node that has the image changes nothing here, so a plan knows its image.
  value = merge(
    { for key, ids in {
      for name, node in local.machines : "node/${coalesce(node.node_name, var.proxmox_node_name)}" => proxmox_virtual_environment_download_file.talos[local.images[name]].id...
      if !local.own_schematic[name]
    } : key => ids[0] },
    { for name, own in local.own_schematic : name => proxmox_virtual_environment_download_file.talos[local.images[name]].id if own },
  )
}
