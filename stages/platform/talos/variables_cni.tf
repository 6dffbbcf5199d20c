variable "cni" {
  description = <<-EOT
    Network plugin. flannel: Talos installs it, with kube-proxy. cilium: Talos installs neither, and the stage platform/cilium
    brings Cilium, which replaces both. none: Talos installs none, and a stage of yours in the layer platform brings another,
    which its output cni tells.
  EOT
  type        = string
  default     = "flannel"

  validation {
    condition     = contains(["flannel", "cilium", "none"], var.cni)
    error_message = "cni is flannel, cilium or none."
  }

  # From 1.14 on, a document of its own installs flannel, and cluster.network.cni has no say.
  validation {
    condition     = var.cni == "flannel" || try(tonumber(split(".", var.talos_contract)[1]) < 14, true)
    error_message = "cni other than flannel needs a talos_contract before v1.14: this stage does not know the format after it."
  }
}
