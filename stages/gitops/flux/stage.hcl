stage {
  summary = "Flux's controllers"
}

# Where the state was lost and the cluster was not.
adopt "kubernetes_namespace_v1.flux" {
  id = var.flux_namespace

  exists "kubernetes_object" {
    api_version = "v1"
    kind        = "Namespace"
    name        = var.flux_namespace
    labels      = { "app.kubernetes.io/managed-by" = "castle" }
  }
}

gate "crd" "kinds" {
  version = "v1"
  timeout = "5m"

  names = [
    "gitrepositories.source.toolkit.fluxcd.io",
    "helmrepositories.source.toolkit.fluxcd.io",
    "ocirepositories.source.toolkit.fluxcd.io",
    "helmcharts.source.toolkit.fluxcd.io",
    "kustomizations.kustomize.toolkit.fluxcd.io",
  ]
}

gate "crd" "releases" {
  names   = ["helmreleases.helm.toolkit.fluxcd.io"]
  version = "v2"
  timeout = "5m"
}

gate "workload" "source" {
  kind      = "Deployment"
  namespace = self.flux_namespace
  name      = "source-controller"
}

gate "workload" "kustomize" {
  kind      = "Deployment"
  namespace = self.flux_namespace
  name      = "kustomize-controller"
}

gate "workload" "helm" {
  kind      = "Deployment"
  namespace = self.flux_namespace
  name      = "helm-controller"
}

gate "workload" "notification" {
  kind      = "Deployment"
  namespace = self.flux_namespace
  name      = "notification-controller"
}

# Running Pods hide it: their connections live on, and nothing reaches the next one.
gate "network_policy" "traffic" {
  namespace = self.flux_namespace
}
