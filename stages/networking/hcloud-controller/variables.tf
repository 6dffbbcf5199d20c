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

variable "hcloud_network_name" {
  description = "Name of the machines' private network. castle wires it."
  type        = string
}

variable "hcloud_location" {
  description = "Location of load balancers whose Service names none."
  type        = string
  default     = "fsn1"

  validation {
    condition     = can(regex("^[a-z0-9]+$", var.hcloud_location))
    error_message = "hcloud_location is one of Hetzner Cloud's, such as fsn1."
  }
}

variable "hcloud_load_balancer_type" {
  description = "Type of load balancers whose Service names none, such as lb11."
  type        = string
  default     = "lb11"
}

variable "external_cloud_provider" {
  description = "Whether the kubelets wait for the controller, as in platform/talos. The controller passes over the nodes of others."
  type        = bool
  default     = false

  validation {
    condition     = var.external_cloud_provider
    error_message = "external_cloud_provider must be true where networking/hcloud-controller is in the cluster: the controller passes over nodes whose kubelets do not wait for it."
  }
}

variable "hcloud_ingress" {
  description = <<-EOT
    A Service of type LoadBalancer that has to have its address, and to take connections there, before the stage is ready, such as
    Traefik's. Flux or somebody else brings it: { namespace = "traefik", service = "traefik" }. With answers = false, its address is
    enough, where castle does not reach it.
  EOT
  type        = object({ namespace = string, service = string, answers = optional(bool, true) })
  default     = null
}

variable "hcloud_controller_chart_repository" {
  description = "Helm repository of the chart hcloud-cloud-controller-manager."
  type        = string
  default     = "https://charts.hetzner.cloud"
}

variable "hcloud_controller_chart_version" {
  description = "Version of the chart hcloud-cloud-controller-manager. Those before 1.30.1 crash: the API has no datacenters any more."
  type        = string
  default     = "1.35.0"

  validation {
    condition     = can(regex("^[0-9]+\\.[0-9]+\\.[0-9]+$", var.hcloud_controller_chart_version))
    error_message = "hcloud_controller_chart_version is an exact version, such as 1.35.0."
  }
}

variable "hcloud_controller_values" {
  description = "Further values of the chart (YAML), applied last."
  type        = list(string)
  default     = []
}

variable "hcloud_controller_nodes" {
  description = "Addresses of the nodes by name. castle wires them."
  type        = map(string)
}

variable "hcloud_controller_pod_subnets" {
  description = "Networks of Pods; null: Talos' own. castle wires it."
  type        = list(string)
  default     = null
}
