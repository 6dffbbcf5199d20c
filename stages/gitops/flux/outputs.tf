output "flux_namespace" {
  description = "Namespace of Flux, with its controllers in it."
  value       = kubernetes_namespace_v1.flux.metadata[0].name
  # Whoever takes the name from here may make Flux's objects there.
  depends_on = [helm_release.flux]
}
