# Proxmox starts these machines again, on another node if theirs has failed. Terraform takes them out of high
# availability before it deletes them, and a machine that is made anew joins it again.
resource "proxmox_haresource" "machine" {
  for_each = { for name, machine in local.machines : name => machine if try(machine.ha.enabled, false) }

  resource_id  = "vm:${proxmox_virtual_environment_vm.node[each.key].vm_id}"
  state        = "started"
  comment      = "Made by castle for the cluster ${var.cluster_name}."
  max_restart  = each.value.ha.max_restart
  max_relocate = each.value.ha.max_relocate
  failback     = each.value.ha.failback

  lifecycle {
    replace_triggered_by = [proxmox_virtual_environment_vm.node[each.key].id]
  }
}

# No other cluster has this name: it derives from the cluster's key, as the machines' UUIDs do.
resource "proxmox_harule" "controlplanes" {
  count = var.proxmox_separate_controlplanes ? 1 : 0

  rule      = "castle-${var.cluster_name}-${substr(uuidv5("oid", "${var.serviceaccount_public_key_pem}/${var.cluster_name}/controlplanes"), 0, 8)}"
  type      = "resource-affinity"
  affinity  = "negative"
  comment   = "Made by castle: control planes on different nodes."
  resources = [for name, machine in local.machines : proxmox_haresource.machine[name].resource_id if machine.role == "controlplane"]

  # A resource that is removed leaves the rule.
  lifecycle {
    replace_triggered_by = [proxmox_haresource.machine]
  }
}
