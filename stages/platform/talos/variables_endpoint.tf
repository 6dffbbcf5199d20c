variable "vip" {
  description = "Virtual address of the Kubernetes API, which the control planes hold in turn. null: there is none, and api_endpoint leads to them."
  type        = string
  default     = null

  validation {
    condition     = var.vip == null || can(cidrhost("${var.vip}/32", 0)) && (!can(regex(":", var.vip)) || try(cidrhost("${var.vip}/128", 0) == var.vip, false))
    error_message = "vip is an IPv4 or IPv6 address without a prefix length, in its shortest form."
  }
}

variable "api_endpoint" {
  description = <<-EOT
    DNS name or address by which machines and clients reach the Kubernetes API: that of a load balancer in front of the control
    planes, or a name of the VIP. null: the VIP itself. A cluster with one control plane may have its address here.
  EOT
  type        = string
  default     = null

  validation {
    condition     = var.api_endpoint != null || var.vip != null
    error_message = "The Kubernetes API has no endpoint: set vip, or api_endpoint to the name or the address of a load balancer."
  }

  validation {
    condition = var.api_endpoint == null || can(cidrhost("${var.api_endpoint}/32", 0)) || (
      can(regex("^[a-z0-9]([a-z0-9-]*[a-z0-9])?([.][a-z0-9]([a-z0-9-]*[a-z0-9])?)*$", var.api_endpoint)) && !can(regex("^[0-9.]+$", var.api_endpoint))
    )
    error_message = "api_endpoint is a DNS name or an address, such as api.lan, without https:// and without a port, which is api_port."
  }

  validation {
    condition     = var.api_endpoint == null || var.vip == null || !can(cidrhost("${var.api_endpoint}/32", 0)) || var.api_endpoint == var.vip
    error_message = "api_endpoint is another address than vip: nobody would reach the API through the VIP. Remove vip for a load balancer, or name the VIP in api_endpoint by its DNS name."
  }

  validation {
    condition = alltrue([
      for machine in var.machines : var.api_endpoint == null || machine.address != var.api_endpoint || machine.role == "controlplane" &&
      length([for other in var.machines : other if other.role == "controlplane"]) == 1
    ])
    error_message = "api_endpoint is the address of one machine: the cluster would be lost with it. Only that of a single control plane may be the endpoint."
  }
}

variable "api_port" {
  description = "Port of api_endpoint. A load balancer passes it to port 6443 of the control planes."
  type        = number
  default     = 6443

  validation {
    condition     = var.api_port >= 1 && var.api_port <= 65535 && floor(var.api_port) == var.api_port
    error_message = "api_port is a whole number from 1 to 65535."
  }

  validation {
    condition     = var.api_port == 6443 || var.api_endpoint != null && !contains(concat([var.vip], [for machine in var.machines : machine.address]), var.api_endpoint != null ? var.api_endpoint : "")
    error_message = "api_port is 6443 without a load balancer: the API listens there on the control planes, and on the VIP."
  }
}
