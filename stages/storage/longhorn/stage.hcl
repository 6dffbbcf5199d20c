stage {
  summary = "Longhorn gives Pods volumes that outlive them"

  inputs = {
    longhorn_s3_access_key_id     = secrets.s3_access_key_id
    longhorn_s3_secret_access_key = secrets.s3_secret_access_key
  }
}

gate "workload" "manager" {
  kind      = "DaemonSet"
  namespace = self.longhorn_namespace
  name      = "longhorn-manager"
}

# From here on nothing belongs to the Helm release: the manager and the driver
# deployer make it at run time, and Helm's own wait never sees it.
gate "endpoint_slice" "webhook" {
  namespace = self.longhorn_namespace
  service   = "longhorn-admission-webhook"
}

gate "webhook" "validator" {
  configuration = "longhorn-webhook-validator"
}

gate "workload" "csi_provisioner" {
  kind      = "Deployment"
  namespace = self.longhorn_namespace
  name      = "csi-provisioner"
}

gate "workload" "csi_attacher" {
  kind      = "Deployment"
  namespace = self.longhorn_namespace
  name      = "csi-attacher"
}

gate "workload" "csi_plugin" {
  kind      = "DaemonSet"
  namespace = self.longhorn_namespace
  name      = "longhorn-csi-plugin"
}
