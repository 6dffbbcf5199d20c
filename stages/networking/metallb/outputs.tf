output "metallb_namespace" {
  description = "Namespace of MetalLB, the only one in which it accepts its objects."
  value       = kubernetes_namespace_v1.metallb.metadata[0].name
}
