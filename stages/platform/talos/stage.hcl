stage {
  summary = "Creates Kubernetes with Talos on the platform's machines"

  inputs = {
    cluster_name                   = cluster.name
    machines                       = platform.machines
    client_configuration           = secrets.talos_client_configuration
    machine_secrets                = secrets.talos_machine_secrets
    recorded_talos_contract        = secrets.talos_contract
    serviceaccount_private_key_pem = secrets.serviceaccount_private_key_pem
  }
}

# Applying a configuration takes over an existing machine and its contents. So it goes only to machines in
# maintenance mode, and to those that this cluster's own secrets open.
preflight "talos_maintenance" "machines" {
  endpoints            = { for name, machine in var.machines : name => machine.address if machine.reset }
  resource             = "talos_machine_configuration_apply.node"
  founders             = [for name, machine in var.machines : name if machine.reset && machine.role == "controlplane"]
  founding             = "talos_machine_bootstrap.cluster"
  client_configuration = var.client_configuration
}

# A new machine has no configuration.
replace "talos_machine_configuration_apply.node" {
  instance = platform.instance
}

# A cluster whose state was lost is not bootstrapped again: the machines know.
adopt "talos_machine_bootstrap.cluster" {
  id = "machine_bootstrap"

  exists "talos_bootstrapped" {
    endpoints            = { for name, machine in var.machines : name => machine.address if machine.role == "controlplane" }
    client_configuration = var.client_configuration
  }
}

# One machine is not yet a quorum, and the VIP is held before the API answers
# behind it; it moves once more while control planes join.
gate "talos_etcd" "quorum" {
  voters  = length([for machine in var.machines : machine if machine.role == "controlplane"])
  timeout = "15m"
}

gate "virtual_ip" "holder" {
  when    = var.vip != null
  address = var.vip
  stable  = 3
  timeout = "15m"
}

# Through the kubeconfig's server, which is the endpoint, and at each control plane.
gate "kubernetes_api" "endpoint" {
  endpoints = [for machine in var.machines : machine.address if machine.role == "controlplane"]
  stable    = 3
  timeout   = "15m"
}

# The node of a machine that was removed stays until somebody deletes it. Kubernetes refuses some labels of
# workers, and a changed taint of a worker that runs.
gate "nodes" "ready" {
  when    = var.cni == "flannel"
  names   = [for name in keys(var.machines) : "${cluster.name}-${name}"]
  timeout = "15m"

  labels = {
    for name, machine in var.machines : "${cluster.name}-${name}" =>
    merge(lookup(var.node_labels, machine.role, {}), lookup(var.node_labels, name, {}))
  }
  taints = {
    for name, machine in var.machines : "${cluster.name}-${name}" =>
    merge(lookup(var.node_taints, machine.role, {}), lookup(var.node_taints, name, {}))
  }
}

# The stage that brings the network plugin has the gate on ready nodes.
gate "nodes" "registered" {
  when    = var.cni != "flannel"
  names   = [for name in keys(var.machines) : "${cluster.name}-${name}"]
  ready   = false
  timeout = "15m"

  labels = {
    for name, machine in var.machines : "${cluster.name}-${name}" =>
    merge(lookup(var.node_labels, machine.role, {}), lookup(var.node_labels, name, {}))
  }
  taints = {
    for name, machine in var.machines : "${cluster.name}-${name}" =>
    merge(lookup(var.node_taints, machine.role, {}), lookup(var.node_taints, name, {}))
  }
}

# A machine keeps its Talos until it is upgraded, whatever its configuration names.
gate "talos_version" "machines" {
  version   = var.talos_version
  machines  = { for name, machine in var.machines : name => machine.address }
  installers = {
    for name, machine in var.machines : name => format("%s/%s-installer/%s:%s", var.talos_image_factory, machine.platform,
      compact(concat( # as in schematic.tf
        [for key in [name, machine.role] : lookup(var.talos_machine_schematics, key, { extensions = [], id = null }).id],
        [for extensions in [sort(distinct(concat(var.talos_extensions, flatten([
          for key, given in var.talos_machine_schematics : given.extensions if contains([machine.role, name], key)
          ]))))] : length(extensions) == 0 ? var.talos_schematic_id : sha256(format(
          "customization:\n    systemExtensions:\n        officialExtensions:\n%s",
          join("", [for extension in extensions : "            - ${extension}\n"]),
        ))],
    ))[0], var.talos_version)
  }
  timeout   = "15m"
}

gate "kubernetes_version" "machines" {
  version   = var.kubernetes_version
  endpoints = [for machine in var.machines : machine.address if machine.role == "controlplane"]
  timeout   = "15m"
}

# The extension joins the tailnet some time after its machine runs, and only with a key that nobody has used.
gate "tailnet_devices" "machines" {
  when          = length(var.tailscale_tags) > 0
  api           = var.tailscale != null ? var.tailscale.api : ""
  client_id     = var.tailscale != null ? var.tailscale.client_id : ""
  client_secret = var.tailscale != null ? var.tailscale.client_secret : ""
  devices       = [for name in keys(var.machines) : "${cluster.name}-${name}"]
  tags          = var.tailscale != null ? var.tailscale.tags : {}
  timeout       = "15m"
}
