stage {
  summary = "Flux's controllers"
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
