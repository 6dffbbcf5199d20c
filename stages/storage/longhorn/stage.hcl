stage {
  summary = "Longhorn gives Pods volumes that outlive them"

  inputs = {
    longhorn_s3_access_key_id     = secrets.s3_access_key_id
    longhorn_s3_secret_access_key = secrets.s3_secret_access_key
  }
}

# Where the state was lost and the cluster was not.
adopt "kubernetes_namespace_v1.longhorn" {
  id = var.longhorn_namespace

  exists "kubernetes_object" {
    api_version = "v1"
    kind        = "Namespace"
    name        = var.longhorn_namespace
    labels      = { "app.kubernetes.io/managed-by" = "castle" }
  }
}

adopt "kubernetes_secret_v1.backup[0]" {
  id = substr(coalesce(var.longhorn_backup_target, "none"), 0, 5) == "s3://" ? "${var.longhorn_namespace}/longhorn-backup" : null

  exists "kubernetes_object" {
    api_version = "v1"
    kind        = "Secret"
    namespace   = var.longhorn_namespace
    name        = "longhorn-backup"
    labels      = { "app.kubernetes.io/managed-by" = "castle" }
  }
}

gate "crd" "kinds" {
  version = "v1beta2"
  timeout = "5m"

  names = [
    "engineimages.longhorn.io",
    "instancemanagers.longhorn.io",
    "nodes.longhorn.io",
    "recurringjobs.longhorn.io",
    "volumes.longhorn.io",
  ]
}

gate "workload" "manager" {
  kind      = "DaemonSet"
  namespace = var.longhorn_namespace
  name      = "longhorn-manager"
  timeout   = "15m"
}

# Running Pods hide it: their connections live on, and nothing reaches the next one.
gate "network_policy" "traffic" {
  namespace = var.longhorn_namespace
  timeout   = "15m"
}

# The objects from here on do not belong to the Helm release. The managers and the driver deployer
# create them at run time, and Helm's own wait does not cover them.
gate "endpoint_slice" "webhook" {
  namespace = var.longhorn_namespace
  service   = "longhorn-admission-webhook"
  timeout   = "15m"
}

gate "webhook" "mutator" {
  configuration = "longhorn-webhook-mutator"
  timeout       = "15m"
}

# Every manager serves it, and each call may reach another one.
gate "webhook" "validator" {
  configuration = "longhorn-webhook-validator"
  stable        = 3
  timeout       = "15m"

  accepts = [
    {
      apiVersion = "longhorn.io/v1beta2"
      kind       = "RecurringJob"
      metadata   = { name = "castle-probe", namespace = var.longhorn_namespace }
      spec       = { name = "castle-probe", task = "snapshot", cron = "0 0 1 1 *", retain = 1, concurrency = 1 }
    },
  ]

  # The schema takes any text for a time.
  rejects = [
    {
      apiVersion = "longhorn.io/v1beta2"
      kind       = "RecurringJob"
      metadata   = { name = "castle-probe", namespace = var.longhorn_namespace }
      spec       = { name = "castle-probe", task = "snapshot", cron = "never", retain = 1, concurrency = 1 }
    },
  ]
}

# A manager reports its node only after its webhook serves. Managers run where Pods
# without tolerations do: on the workers.
gate "condition" "nodes_ready" {
  api_version = "longhorn.io/v1beta2"
  kind        = "Node"
  namespace   = var.longhorn_namespace
  type        = "Ready"
  count       = max(1, platform.worker_count)
  timeout     = "15m"
}

# The condition follows Kubernetes' node. Longhorn's scheduler also reads what its own objects allow.
gate "condition" "nodes_schedulable" {
  api_version = "longhorn.io/v1beta2"
  kind        = "Node"
  namespace   = var.longhorn_namespace
  type        = "Schedulable"
  count       = max(1, platform.worker_count)
  timeout     = "15m"

  fields = { "spec.allowScheduling" = "true" }
}

gate "condition" "nodes_mounts" {
  api_version = "longhorn.io/v1beta2"
  kind        = "Node"
  namespace   = var.longhorn_namespace
  type        = "MountPropagation"
  count       = max(1, platform.worker_count)
  timeout     = "15m"
}

gate "condition" "disks" {
  api_version = "longhorn.io/v1beta2"
  kind        = "Node"
  namespace   = var.longhorn_namespace
  count       = max(1, platform.worker_count)
  timeout     = "15m"

  fields = {
    "spec.disks.*.allowScheduling"                      = "true"
    "status.diskStatus.*.conditions.Ready.status"       = "True"
    "status.diskStatus.*.conditions.Schedulable.status" = "True"
  }
}

gate "condition" "engine_image" {
  api_version = "longhorn.io/v1beta2"
  kind        = "EngineImage"
  namespace   = var.longhorn_namespace
  fields      = { "status.state" = "deployed" }
  timeout     = "15m"
}

gate "condition" "instance_managers" {
  api_version = "longhorn.io/v1beta2"
  kind        = "InstanceManager"
  namespace   = var.longhorn_namespace
  fields      = { "status.currentState" = "running" }
  count       = max(1, platform.worker_count)
  timeout     = "15m"
}

gate "workload" "csi_provisioner" {
  kind      = "Deployment"
  namespace = var.longhorn_namespace
  name      = "csi-provisioner"
  timeout   = "15m"
}

gate "workload" "csi_attacher" {
  kind      = "Deployment"
  namespace = var.longhorn_namespace
  name      = "csi-attacher"
  timeout   = "15m"
}

gate "workload" "csi_resizer" {
  kind      = "Deployment"
  namespace = var.longhorn_namespace
  name      = "csi-resizer"
  timeout   = "15m"
}

gate "workload" "csi_snapshotter" {
  kind      = "Deployment"
  namespace = var.longhorn_namespace
  name      = "csi-snapshotter"
  timeout   = "15m"
}

gate "workload" "csi_plugin" {
  kind      = "DaemonSet"
  namespace = var.longhorn_namespace
  name      = "longhorn-csi-plugin"
  timeout   = "15m"
}

# The kubelets have taken the driver in, and claims that name no class get it.
gate "storage_class" "longhorn" {
  name    = "longhorn"
  driver  = "driver.longhorn.io"
  default = true
  timeout = "15m"
}
