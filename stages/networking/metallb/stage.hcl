stage {
  summary = "MetalLB gives Services of type LoadBalancer an address"
}

# Where the state was lost and the cluster was not.
adopt "kubernetes_namespace_v1.metallb" {
  id = var.metallb_namespace

  exists "kubernetes_object" {
    api_version = "v1"
    kind        = "Namespace"
    name        = var.metallb_namespace
    labels      = { "app.kubernetes.io/managed-by" = "castle" }
  }
}

# The peers' definition has a conversion webhook, whose CA is set at run time.
gate "crd" "kinds" {
  names = [
    "ipaddresspools.metallb.io",
    "l2advertisements.metallb.io",
    "bgppeers.metallb.io",
  ]
}

gate "workload" "controller" {
  kind      = "Deployment"
  namespace = var.metallb_namespace
  name      = "metallb-controller"
}

gate "workload" "speaker" {
  kind      = "DaemonSet"
  namespace = var.metallb_namespace
  name      = "metallb-speaker"
}

# Running Pods hide it: their connections live on, and nothing reaches the next one.
gate "network_policy" "traffic" {
  namespace = var.metallb_namespace
}

# The Pod runs well before its webhook listens.
gate "endpoint_slice" "webhook" {
  namespace = var.metallb_namespace
  service   = "metallb-webhook-service"
}

# MetalLB registers its handlers one by one after the Pod is ready. Only an object that each accepts
# and one that each rejects prove that it validates. The gate stores no object.
gate "webhook" "objects" {
  configuration = "metallb-webhook-configuration"
  stable        = 3

  accepts = [
    {
      apiVersion = "metallb.io/v1beta1"
      kind       = "IPAddressPool"
      metadata   = { name = "castle-probe", namespace = var.metallb_namespace }
      spec       = { addresses = ["192.0.2.0/32"] }
    },
    {
      apiVersion = "metallb.io/v1beta1"
      kind       = "L2Advertisement"
      metadata   = { name = "castle-probe", namespace = var.metallb_namespace }
      spec       = { interfaces = ["castle-probe"] }
    },
  ]

  # MetalLB takes its objects in its own namespace only.
  rejects = [
    {
      apiVersion = "metallb.io/v1beta1"
      kind       = "IPAddressPool"
      metadata   = { name = "castle-probe", namespace = "default" }
      spec       = { addresses = ["192.0.2.0/32"] }
    },
    {
      apiVersion = "metallb.io/v1beta1"
      kind       = "L2Advertisement"
      metadata   = { name = "castle-probe", namespace = "default" }
      spec       = { interfaces = ["castle-probe"] }
    },
  ]
}
