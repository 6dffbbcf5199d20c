variable "talos_machine_config_patches" {
  description = "Further machine configuration patches (YAML) of single machines, by their names, applied last."
  type        = map(list(string))
  default     = {}

  validation {
    condition     = alltrue([for name in keys(var.talos_machine_config_patches) : contains(keys(var.machines), name)])
    error_message = "talos_machine_config_patches names a machine that nodes does not have. Its keys are names such as worker-01."
  }
}

variable "node_labels" {
  description = <<-EOT
    Labels of Kubernetes nodes, by role (controlplane, worker) or by a machine's name; a machine's own come over those of its role.
    A worker sets them with its kubelet's rights, so that Kubernetes refuses most labels of kubernetes.io.
  EOT
  type        = map(map(string))
  default     = {}

  validation {
    condition     = alltrue([for key in keys(var.node_labels) : contains(concat(["controlplane", "worker"], keys(var.machines)), key)])
    error_message = "node_labels has a key that is neither a role (controlplane, worker) nor the name of a machine."
  }

  validation {
    condition = alltrue(flatten([
      for key, labels in var.node_labels : [
        for label in keys(labels) : !can(regex("^([^/]*\\.)?(kubernetes|k8s)\\.io/", label)) || can(regex(
          "^(kubernetes\\.io/(hostname|arch|os)|topology\\.kubernetes\\.io/(region|zone)|([^/]*\\.)?(kubelet|node)\\.kubernetes\\.io/.+)$", label
        ))
      ]
      if key == "worker" || try(var.machines[key].role, "") == "worker"
    ]))
    error_message = "A worker sets no label of kubernetes.io or k8s.io but topology.kubernetes.io/region and /zone, and those of node.kubernetes.io: admission (NodeRestriction) refuses node-role.kubernetes.io and others, and with it every label of the node. Give it such a label with kubectl label node."
  }
}

variable "node_annotations" {
  description = "Annotations of Kubernetes nodes, by role (controlplane, worker) or by a machine's name, as node_labels."
  type        = map(map(string))
  default     = {}

  validation {
    condition     = alltrue([for key in keys(var.node_annotations) : contains(concat(["controlplane", "worker"], keys(var.machines)), key)])
    error_message = "node_annotations has a key that is neither a role (controlplane, worker) nor the name of a machine."
  }
}

variable "node_taints" {
  description = <<-EOT
    Taints of Kubernetes nodes, by role (controlplane, worker) or by a machine's name: { worker-02 = { "nvidia.com/gpu" = "present:NoSchedule" } }.
    A worker gets its taints when it registers, and Kubernetes lets it change none later: kubectl taint node does it for a worker that runs.
  EOT
  type        = map(map(string))
  default     = {}

  validation {
    condition     = alltrue([for key in keys(var.node_taints) : contains(concat(["controlplane", "worker"], keys(var.machines)), key)])
    error_message = "node_taints has a key that is neither a role (controlplane, worker) nor the name of a machine."
  }

  validation {
    condition = alltrue(flatten([
      for taints in values(var.node_taints) : [
        for key, taint in taints : can(regex("^([a-z0-9]([a-z0-9.-]*[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$", key)) &&
        can(regex("^(([A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?)?:)?(NoSchedule|PreferNoSchedule|NoExecute)$", taint))
      ]
    ]))
    error_message = "A taint is <key> = \"<value>:<effect>\" or \"<effect>\", where the effect is NoSchedule, PreferNoSchedule or NoExecute."
  }
}

variable "allow_scheduling_on_controlplanes" {
  description = "Whether control planes take Pods without tolerations, and external load balancers may send to them. A cluster without workers needs it."
  type        = bool
  default     = false
}
