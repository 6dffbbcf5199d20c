variable "cluster_name" {
  description = "Name of the cluster; servers and Kubernetes nodes are called <cluster_name>-<node>. castle wires it."
  type        = string

  validation {
    condition     = can(regex("^[a-z0-9]([a-z0-9-]*[a-z0-9])?$", var.cluster_name))
    error_message = "cluster_name consists of lower-case letters, digits and inner hyphens: it becomes host names and a label."
  }
}

variable "nodes" {
  description = <<-EOT
    The machines by name. role is controlplane or worker. address is the machine's in network.subnet, by which castle and the
    other machines reach it: castle runs in that network, or has a tunnel to it. server_type and location are those of
    hcloud_server_type and hcloud_location where a machine has none.
  EOT
  type = map(object({
    role        = string
    address     = string
    server_type = optional(string)
    location    = optional(string)
  }))

  validation {
    condition     = alltrue([for name in keys(var.nodes) : can(regex("^[a-z0-9]([a-z0-9-]*[a-z0-9])?$", name))])
    error_message = "A node's name consists of lower-case letters, digits and inner hyphens."
  }

  validation {
    condition     = alltrue([for node in var.nodes : contains(["controlplane", "worker"], node.role)])
    error_message = "A node's role is controlplane or worker."
  }

  validation {
    condition     = length([for node in var.nodes : node if node.role == "controlplane"]) % 2 == 1
    error_message = "The number of control planes must be odd: with an even one, etcd stands no more failures than with one machine less."
  }

  validation {
    condition     = length([for node in var.nodes : node if node.role == "controlplane"]) <= 10
    error_message = "A placement group has at most ten servers, and all control planes are in one."
  }

  validation {
    condition     = length(distinct([for node in var.nodes : node.address])) == length(var.nodes)
    error_message = "Two nodes have the same address."
  }

  validation {
    condition     = alltrue([for node in var.nodes : can(cidrhost("${node.address}/32", 0)) && !can(regex(":", node.address))])
    error_message = "A node's address is an IPv4 address without a prefix length: a network of Hetzner Cloud has no other."
  }

  validation {
    condition = alltrue([
      for node in var.nodes : can(regex("^[a-z]+[0-9]+$", coalesce(node.server_type, "cx33"))) && can(regex("^[a-z]{3}[0-9]?$", coalesce(node.location, "fsn1")))
    ])
    error_message = "A node's server_type is one of Hetzner Cloud's, such as cx33, and its location one such as fsn1."
  }

  validation {
    condition = alltrue([
      for node in var.nodes : contains(var.hcloud_architectures, startswith(coalesce(node.server_type, var.hcloud_server_type), "cax") ? "arm" : "x86")
    ])
    error_message = "A node's server_type has an architecture that hcloud_architectures lacks, so there would be no snapshot for it. Types that begin with cax are arm, others x86."
  }
}

variable "network" {
  description = <<-EOT
    The private network that the stage makes: ip_range is all of it, at least a /24, and subnet the part that the machines are
    in. zone is the network zone of their locations.
  EOT
  type = object({
    ip_range = optional(string, "10.0.0.0/16")
    subnet   = optional(string, "10.0.1.0/24")
    zone     = optional(string, "eu-central")
  })
  default = {}

  validation {
    condition = alltrue([
      for range in [var.network.ip_range, var.network.subnet] :
      try(cidrhost(range, 0) == split("/", range)[0], false) && can(regex("^(10[.]|172[.](1[6-9]|2[0-9]|3[01])[.]|192[.]168[.])", range))
    ])
    error_message = "network.ip_range and network.subnet are private IPv4 networks in their shortest form, such as 10.0.0.0/16."
  }

  validation {
    condition     = try(tonumber(split("/", var.network.ip_range)[1]) <= 24, true)
    error_message = "network.ip_range is at least a /24."
  }

  validation {
    condition     = contains(["eu-central", "us-east", "us-west", "ap-southeast"], var.network.zone)
    error_message = "network.zone is one of Hetzner Cloud's: eu-central, us-east, us-west or ap-southeast."
  }

  validation {
    condition     = try(cidrhost("${split("/", var.network.subnet)[0]}/${split("/", var.network.ip_range)[1]}", 0) == cidrhost(var.network.ip_range, 0), false)
    error_message = "network.subnet lies outside of network.ip_range."
  }

  validation {
    condition = alltrue([
      for node in var.nodes : try(cidrhost("${node.address}/${split("/", var.network.subnet)[1]}", 0) == split("/", var.network.subnet)[0], false)
    ])
    error_message = "A node's address lies outside of network.subnet."
  }

  # Locations that are not listed are left to the API.
  validation {
    condition = alltrue([
      for node in var.nodes : node.location == null || var.network.zone == lookup({
        fsn1 = "eu-central", nbg1 = "eu-central", hel1 = "eu-central", ash = "us-east", hil = "us-west", sin = "ap-southeast",
      }, coalesce(node.location, "fsn1"), var.network.zone)
    ])
    error_message = "A node's location is in another network zone than network.zone: it could not join the private network."
  }

  validation {
    condition = alltrue([
      for node in var.nodes : try(cidrhost(var.network.ip_range, 1) != node.address, true)
    ])
    error_message = "A node's address is the network's gateway: it has the first one of network.ip_range."
  }
}

variable "api_endpoint" {
  description = "Address of the load balancer in network.subnet. platform/talos has it as the endpoint of the Kubernetes API."
  type        = string

  validation {
    condition     = try(cidrhost("${var.api_endpoint}/${split("/", var.network.subnet)[1]}", 0) == split("/", var.network.subnet)[0], false)
    error_message = "api_endpoint is an address in network.subnet: the load balancer's."
  }

  validation {
    condition = alltrue([
      for other in [try(cidrhost(var.network.ip_range, 1), ""), try(cidrhost(var.network.subnet, 0), ""), try(cidrhost(var.network.subnet, -1), "")] :
      var.api_endpoint != other
    ])
    error_message = "api_endpoint is no address that the load balancer can have: the network's gateway, the first one of network.ip_range, or the subnet's own or its broadcast address."
  }
}

variable "hcloud_server_type" {
  description = "Server type of the machines that name none, with at least 4 GB of memory. Those that begin with cax are arm."
  type        = string
  default     = "cx33"

  validation {
    condition     = can(regex("^[a-z]+[0-9]+$", var.hcloud_server_type))
    error_message = "hcloud_server_type is one of Hetzner Cloud's, such as cx33."
  }
}

variable "hcloud_location" {
  description = "Location of the load balancer, and of the machines that name none."
  type        = string
  default     = "fsn1"

  validation {
    condition     = can(regex("^[a-z]{3}[0-9]?$", var.hcloud_location))
    error_message = "hcloud_location is one of Hetzner Cloud's, such as fsn1."
  }

  validation {
    condition = var.network.zone == lookup({
      fsn1 = "eu-central", nbg1 = "eu-central", hel1 = "eu-central", ash = "us-east", hil = "us-west", sin = "ap-southeast",
    }, var.hcloud_location, var.network.zone)
    error_message = "hcloud_location is in another network zone than network.zone."
  }
}

variable "hcloud_load_balancer_type" {
  description = "Type of the load balancer in front of the control planes."
  type        = string
  default     = "lb11"

  validation {
    condition     = can(regex("^lb[0-9]+$", var.hcloud_load_balancer_type))
    error_message = "hcloud_load_balancer_type is one of Hetzner Cloud's, such as lb11."
  }
}

variable "hcloud_architectures" {
  description = "Architectures of the machines' server types: x86, arm or both. platform/hcloud-image finds a snapshot for each."
  type        = set(string)
  default     = ["x86"]

  validation {
    condition     = length(var.hcloud_architectures) > 0 && alltrue([for name in var.hcloud_architectures : contains(["x86", "arm"], name)])
    error_message = "hcloud_architectures are x86, arm or both."
  }
}

variable "hcloud_api_public" {
  description = "Whether the load balancer has a public address, too. Everybody on the internet then reaches the APIs of Kubernetes and Talos, which ask for certificates."
  type        = bool
  default     = false
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

variable "hcloud_token" {
  description = "API token of the project. castle wires it from the secrets layer."
  type        = string
  sensitive   = true

  validation {
    condition     = can(regex("^[A-Za-z0-9]{64}$", var.hcloud_token))
    error_message = "hcloud_token has 64 letters and digits: look at HCLOUD_TOKEN."
  }
}

variable "hcloud_images" {
  description = "Id of the snapshot with Talos, by architecture. castle wires it from platform/hcloud-image."
  type        = map(string)
}

variable "serviceaccount_public_key_pem" {
  description = "Key that verifies ServiceAccount tokens. No other cluster has it, so the uuids in labels are derived from it. castle wires it from the secrets layer."
  type        = string
}
