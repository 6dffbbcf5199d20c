# The patches of what a cluster sets for single machines or for a role. One without such values has none of them.
locals {
  node_labels = {
    for name, machine in var.machines : name => merge(lookup(var.node_labels, machine.role, {}), lookup(var.node_labels, name, {}))
  }
  node_annotations = {
    for name, machine in var.machines : name => merge(lookup(var.node_annotations, machine.role, {}), lookup(var.node_annotations, name, {}))
  }
  node_taints = {
    for name, machine in var.machines : name => merge(lookup(var.node_taints, machine.role, {}), lookup(var.node_taints, name, {}))
  }

  node_patches = {
    for name, machine in var.machines : name => concat(
      length(local.node_labels[name]) == 0 ? [] : [yamlencode({ machine = { nodeLabels = local.node_labels[name] } })],
      length(local.node_annotations[name]) == 0 ? [] : [yamlencode({ machine = { nodeAnnotations = local.node_annotations[name] } })],
      length(local.node_taints[name]) == 0 ? [] : [
        # machine.nodeTaints of a worker never arrives (NodeRestriction) and keeps its labels and annotations
        # from arriving, too: siderolabs/talos#8193. The kubelet may register with taints.
        machine.role == "controlplane" ? yamlencode({ machine = { nodeTaints = local.node_taints[name] } }) : yamlencode({
          machine = {
            kubelet = {
              extraConfig = {
                registerWithTaints = [
                  for key, taint in local.node_taints[name] : {
                    key    = key
                    value  = length(split(":", taint)) == 2 ? split(":", taint)[0] : ""
                    effect = element(split(":", taint), length(split(":", taint)) - 1)
                  }
                ]
              }
            }
          }
        }),
      ],
    )
  }

  # A load balancer such as MetalLB leaves the nodes with this label out, which Talos gives to control planes.
  scheduling_patches = {
    for name, machine in var.machines : name => machine.role == "controlplane" && var.allow_scheduling_on_controlplanes ? [
      yamlencode({
        cluster = { allowSchedulingOnControlPlanes = true }
        machine = { nodeLabels = { "node.kubernetes.io/exclude-from-external-load-balancers" = { "$patch" = "delete" } } }
      }),
    ] : []
  }

  # The nodes that take Pods without tolerations.
  open = [
    for name, machine in var.machines : name
    if(machine.role == "worker" || var.allow_scheduling_on_controlplanes) && alltrue([
      for taint in values(local.node_taints[name]) : endswith(taint, "PreferNoSchedule")
    ])
  ]
}
