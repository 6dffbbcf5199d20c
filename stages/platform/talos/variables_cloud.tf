variable "external_cloud_provider" {
  description = <<-EOT
    Whether a cloud controller manager of the layer networking gives each node its addresses and its provider id. Until then,
    kubelets keep Pods from a new node by a taint, so a cluster without such a controller stays closed to them.
  EOT
  type        = bool
  default     = false
}
