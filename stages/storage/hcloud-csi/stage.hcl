stage {
  summary = "Hetzner Cloud's CSI driver gives Pods volumes that outlive their servers"

  inputs = {
    hcloud_token                  = secrets.hcloud_token
    hcloud_csi_cluster_name       = cluster.name
    hcloud_csi_nodes              = platform.node_addresses
    serviceaccount_public_key_pem = secrets.serviceaccount_public_key_pem
  }
}

# Where the state was lost and the cluster was not.
adopt "kubernetes_secret_v1.token" {
  id = "kube-system/hcloud-csi"

  exists "kubernetes_object" {
    api_version = "v1"
    kind        = "Secret"
    namespace   = "kube-system"
    name        = "hcloud-csi"
    labels      = { "app.kubernetes.io/managed-by" = "castle" }
  }
}

# It makes, attaches, enlarges and deletes volumes.
gate "workload" "controller" {
  kind      = "Deployment"
  namespace = "kube-system"
  name      = "hcloud-csi-controller"
}

gate "workload" "node" {
  kind      = "DaemonSet"
  namespace = "kube-system"
  name      = "hcloud-csi-node"
  desired   = length(var.hcloud_csi_nodes)
}

# The driver exists, the kubelets have taken it in, and claims that name no class get it.
gate "storage_class" "volumes" {
  name    = var.hcloud_csi_class_name
  driver  = "csi.hetzner.cloud"
  default = true
}
