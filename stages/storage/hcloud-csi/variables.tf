variable "hcloud_token" {
  description = "API token of the project. castle wires it from the secrets layer."
  type        = string
  sensitive   = true

  validation {
    condition     = can(regex("^[A-Za-z0-9]{64}$", var.hcloud_token))
    error_message = "hcloud_token has 64 letters and digits: look at HCLOUD_TOKEN."
  }
}

variable "hcloud_endpoint" {
  description = "Address of Hetzner Cloud's API."
  type        = string
  default     = "https://api.hetzner.cloud/v1"

  validation {
    condition     = can(regex("^https://[^/]+/v1$", var.hcloud_endpoint))
    error_message = "hcloud_endpoint is a https:// address with the path /v1, such as https://api.hetzner.cloud/v1."
  }
}

variable "hcloud_csi_class_name" {
  description = "Name of the StorageClass."
  type        = string
  default     = "hcloud-volumes"
}

variable "hcloud_csi_reclaim_policy" {
  description = "What becomes of a volume whose claim is deleted: Delete, or Retain."
  type        = string
  default     = "Delete"

  validation {
    condition     = contains(["Delete", "Retain"], var.hcloud_csi_reclaim_policy)
    error_message = "hcloud_csi_reclaim_policy is Delete or Retain."
  }
}

variable "hcloud_csi_chart_repository" {
  description = "Helm repository of the chart hcloud-csi."
  type        = string
  default     = "https://charts.hetzner.cloud"
}

variable "hcloud_csi_chart_version" {
  description = "Version of the chart hcloud-csi."
  type        = string
  default     = "2.22.1"

  validation {
    condition     = can(regex("^[0-9]+\\.[0-9]+\\.[0-9]+$", var.hcloud_csi_chart_version))
    error_message = "hcloud_csi_chart_version is an exact version, such as 2.22.1."
  }
}

variable "hcloud_csi_values" {
  description = "Further values of the chart (YAML), applied last."
  type        = list(string)
  default     = []
}

variable "hcloud_csi_cluster_name" {
  description = "Name of the cluster, which its volumes have as a label. castle wires it."
  type        = string
}

variable "hcloud_csi_nodes" {
  description = "Addresses of the nodes by name. castle wires them."
  type        = map(string)
}

variable "serviceaccount_public_key_pem" {
  description = "Key that verifies ServiceAccount tokens. No other cluster has it, so the uuid in the volumes' labels is derived from it. castle wires it from the secrets layer."
  type        = string
}
