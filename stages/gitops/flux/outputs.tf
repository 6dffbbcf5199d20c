output "flux_namespace" {
  description = "Namespace of Flux, with its controllers in it."
  value       = kubernetes_namespace_v1.flux.metadata[0].name
  # A stage that reads the name may create Flux objects there.
  depends_on = [helm_release.flux]
}
