variable "kubeconfig" {
  description = "Kubernetes' administrator access. castle wires it from the platform."
  type        = string
  sensitive   = true
}

variable "talosconfig" {
  description = "Talos' administrator access. castle wires it from the platform."
  type        = string
  sensitive   = true
}

variable "infisical_host" {
  description = "Infisical's address. The EU and US clouds are two installations: an identity of one is refused by the other."
  type        = string
  default     = "https://eu.infisical.com"
}

variable "infisical_project_id" {
  description = "Id of the Infisical project that takes the kubeconfig and the talosconfig."
  type        = string
}

variable "infisical_environment" {
  description = "Slug of the environment inside the project."
  type        = string
  default     = "prod"
}

variable "infisical_folder" {
  description = "Folder that takes the kubeconfig and the talosconfig. castle wires /ephemeral-castle/<cluster>/<platform>."
  type        = string
}
