variable "cluster_name" {
  description = "Name of the cluster; Kubernetes nodes are called <cluster_name>-<node>. castle wires it."
  type        = string

  validation {
    condition     = can(regex("^[a-z0-9]([a-z0-9-]*[a-z0-9])?$", var.cluster_name))
    error_message = "cluster_name consists of lower-case letters, digits and inner hyphens: it becomes host names."
  }
}

variable "machines" {
  description = <<-EOT
    The machines by name. role is controlplane or worker. reset tells that the machine outlives the cluster: destroy resets it.
    platform is what the machine is to Talos, as its image factory calls it. uplink is a CEL expression that is true of the
    card which gets the VIP; longhorn_disk, which may be null, one that is true of the disk for Longhorn. subnets are the
    networks of its addresses where it has several, one for each IP family, that of address first. links are cards with
    addresses or routes of their own: a name, a CEL expression that is true of the card, addresses, gateways by network, and
    whether Talos asks a DHCP server for another address of IPv4, as it does by itself only without links. castle wires it.
  EOT
  type = map(object({
    role          = string
    address       = string
    reset         = bool
    platform      = string
    uplink        = string
    install_disk  = string
    longhorn_disk = string
    subnets       = optional(list(string), [])
    links = optional(list(object({
      name      = string
      selector  = string
      routes    = map(string)
      addresses = optional(list(string), [])
      dhcp      = optional(bool, false)
    })), [])
  }))
}

variable "talos_version" {
  description = "Talos release that the machines run, such as v1.13.0."
  type        = string
  default     = "v1.13.0"

  validation {
    condition     = can(regex("^v[0-9]+\\.[0-9]+\\.[0-9]+$", var.talos_version))
    error_message = "talos_version is a release such as v1.13.0."
  }
}

variable "talos_contract" {
  description = "Minor release of Talos in whose format the machine configurations are made. A cluster keeps it when its Talos is upgraded."
  type        = string
  default     = "v1.13"

  validation {
    condition     = can(regex("^v[0-9]+\\.[0-9]+$", var.talos_contract))
    error_message = "talos_contract is a minor release such as v1.13."
  }

  validation {
    condition = try(
      tonumber(split(".", var.talos_contract)[1]) <= tonumber(split(".", var.talos_version)[1]), true
    )
    error_message = "talos_contract is newer than talos_version: the machines cannot read such configurations."
  }

  validation {
    condition     = var.recorded_talos_contract == null || var.talos_contract == var.recorded_talos_contract
    error_message = "talos_contract differs from the one that the cluster's secrets were made with. A cluster keeps it: set that one again, or castle recreate."
  }
}

variable "recorded_talos_contract" {
  description = "The talos_contract of the cluster's secrets. castle wires it from the secrets layer."
  type        = string
  default     = null
}

variable "kubernetes_version" {
  description = "Kubernetes release, such as 1.36.3. Talos v1.13 supports 1.31 to 1.36."
  type        = string
  default     = "1.36.3"

  validation {
    condition     = can(regex("^[0-9]+\\.[0-9]+\\.[0-9]+$", var.kubernetes_version))
    error_message = "kubernetes_version is a release without a v, such as 1.36.3."
  }
}

variable "talos_image_factory" {
  description = "Host name of the image factory that makes installers."
  type        = string
  default     = "factory.talos.dev"

  validation {
    condition     = can(regex("^[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?(:[0-9]+)?$", var.talos_image_factory))
    error_message = "talos_image_factory is a host name, such as factory.talos.dev, without https:// and without a path."
  }
}

variable "talos_schematic_id" {
  description = "The image factory's id of a schematic. The default is that of siderolabs/iscsi-tools and siderolabs/util-linux-tools, which Longhorn needs."
  type        = string
  default     = "613e1592b2da41ae5e265e8789429f22e121aab91cb4deb6bc3c0b6262961245"

  validation {
    condition     = can(regex("^[0-9a-f]{64}$", var.talos_schematic_id))
    error_message = "talos_schematic_id has 64 hexadecimal digits."
  }
}

variable "talos_config_patches" {
  description = "Further machine configuration patches (YAML) for every node, applied after the stage's own."
  type        = list(string)
  default     = []
}

variable "talos_controlplane_config_patches" {
  description = "Further machine configuration patches (YAML) for control planes only, applied after those for every node."
  type        = list(string)
  default     = []
}

variable "talos_worker_config_patches" {
  description = "Further machine configuration patches (YAML) for workers only, applied after those for every node."
  type        = list(string)
  default     = []
}

variable "serviceaccount_issuer" {
  description = "Issuer that the cluster's ServiceAccount tokens name. null: the endpoint, https://<vip>:6443, as Talos has it."
  type        = string
  default     = null

  validation {
    condition     = var.serviceaccount_issuer == null || can(regex("^https://[^/?#]+(/[^?#]*)?$", var.serviceaccount_issuer))
    error_message = "serviceaccount_issuer is a https:// address, such as https://k8s.example.org:6443."
  }
}

variable "apiserver_extra_args" {
  description = "Further arguments of the Kubernetes API server, such as audit-log-maxage."
  type        = map(string)
  default     = {}

  validation {
    condition     = !contains(keys(var.apiserver_extra_args), "service-account-issuer")
    error_message = "The issuer belongs into serviceaccount_issuer: who verifies the cluster's tokens must know it, too."
  }

  validation {
    condition     = alltrue([for name in keys(var.apiserver_extra_args) : can(regex("^[a-z0-9][a-z0-9-]*$", name))])
    error_message = "A name in apiserver_extra_args is that of an argument without its hyphens, such as audit-log-maxage."
  }
}

variable "serviceaccount_private_key_pem" {
  description = "Key that signs ServiceAccount tokens. castle wires it from the secrets layer."
  type        = string
  sensitive   = true
}

variable "client_configuration" {
  description = "Certificate and key of Talos' administrator. castle wires it from the secrets layer."
  type = object({
    ca_certificate     = string
    client_certificate = string
    client_key         = string
  })
  sensitive = true
}

variable "machine_secrets" {
  description = "Talos' machine secrets. castle wires them from the secrets layer."
  type = object({
    certs = object({
      etcd               = object({ cert = string, key = string })
      k8s                = object({ cert = string, key = string })
      k8s_aggregator     = object({ cert = string, key = string })
      k8s_serviceaccount = object({ key = string })
      os                 = object({ cert = string, key = string })
    })
    cluster = object({ id = string, secret = string })
    secrets = object({
      aescbc_encryption_secret    = optional(string)
      bootstrap_token             = string
      secretbox_encryption_secret = string
    })
    trustdinfo = object({ token = string })
  })
  sensitive = true
}
