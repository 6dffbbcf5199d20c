variable "registry_mirrors" {
  description = <<-EOT
    Mirrors and pull-through caches by registry (docker.io, or * for all): { "docker.io" = { endpoints = ["https://cache.lan/v2/docker.io"],
    override_path = true } }. override_path takes an endpoint's path as it is; skip_fallback never asks the registry itself.
  EOT
  type = map(object({
    endpoints     = list(string)
    override_path = optional(bool, false)
    skip_fallback = optional(bool, false)
  }))
  default = {}

  validation {
    condition     = alltrue([for registry in keys(var.registry_mirrors) : can(regex("^(\\*|[^/@ ]+)$", registry))])
    error_message = "A key of registry_mirrors is a registry's host, with its port if it has one, such as docker.io, or *: nothing else is ever asked for."
  }

  validation {
    condition = alltrue(flatten([
      for mirror in values(var.registry_mirrors) : concat([length(mirror.endpoints) > 0], [for url in mirror.endpoints : can(regex("^https?://[^/@]+(/[^@]*)?$", url))])
    ]))
    error_message = "An endpoint in registry_mirrors is a http:// or https:// address without credentials; those are in the secret REGISTRY_AUTHS."
  }
}

variable "registry_auths" {
  description = "Credentials of registries and mirrors, in Docker's format: {\"auths\": {\"cache.lan\": {\"username\": \"…\", \"password\": \"…\"}}}. Set it in cluster.hcl: inputs = { registry_auths = secrets.registry_auths }."
  type        = string
  default     = null
  sensitive   = true

  validation {
    condition     = var.registry_auths == null || can(keys(jsondecode(var.registry_auths).auths))
    error_message = "The secret REGISTRY_AUTHS is a JSON text as Docker's config.json: {\"auths\": {\"cache.lan\": {\"username\": \"…\", \"password\": \"…\"}}}."
  }
}

variable "registry_ca_certificates" {
  description = "Certificates (PEM) of the authorities that signed those of registries and mirrors, by host name; in cluster.hcl, file() reads one."
  type        = map(string)
  default     = {}

  validation {
    condition     = alltrue([for pem in values(var.registry_ca_certificates) : startswith(trimspace(pem), "-----BEGIN CERTIFICATE-----")])
    error_message = "registry_ca_certificates holds certificates in PEM, by the host name of the registry."
  }

  validation {
    condition     = alltrue([for registry in keys(var.registry_ca_certificates) : can(regex("^[^/@ ]+$", registry))])
    error_message = "A key of registry_ca_certificates is a registry's host, with its port if it has one, such as cache.lan:5000."
  }
}

variable "http_proxy" {
  description = <<-EOT
    Proxy of Talos and the container runtime, and what is reached without it: { https = "http://proxy.lan:3128", no_proxy = ["192.168.1.0/24"] }.
    The machines and the endpoint belong to no_proxy. Another one restarts the machines.
  EOT
  type = object({
    http     = optional(string)
    https    = optional(string)
    no_proxy = optional(list(string), [])
  })
  default = null

  validation {
    condition = alltrue([
      for url in compact([try(var.http_proxy.http, null), try(var.http_proxy.https, null)]) : can(regex("^https?://[^/@]+/?$", url))
    ])
    error_message = "http_proxy.http and http_proxy.https are http:// or https:// addresses without credentials, such as http://proxy.lan:3128."
  }

  validation {
    condition = var.http_proxy == null || alltrue([
      for address in compact(concat([var.vip, var.api_endpoint], [for machine in values(var.machines) : machine.address])) : anytrue([
        for entry in try(var.http_proxy.no_proxy, []) :
        entry == address || endswith(address, ".${trimprefix(entry, ".")}") || can(regex("/", entry)) && try(cidrhost("${address}/${split("/", entry)[1]}", 0) == cidrhost(entry, 0), false)
      ])
    ])
    error_message = "http_proxy.no_proxy lacks the address of a machine, the VIP or api_endpoint: etcd and Talos would reach one another through the proxy. Add the machines' network, such as 192.168.1.0/24."
  }
}

variable "ntp_servers" {
  description = "NTP servers of the machines, as names or addresses. Empty: Talos' own, time.cloudflare.com."
  type        = list(string)
  default     = []

  validation {
    condition     = alltrue([for server in var.ntp_servers : can(regex("^[A-Za-z0-9.-]+$", server)) || can(cidrhost("${server}/128", 0))])
    error_message = "An entry of ntp_servers is a name or an address alone, such as 192.168.1.1: with a port or a scheme, Talos finds no server, and a machine waits for the time before it goes on."
  }
}

variable "extra_hosts" {
  description = "Further lines of the machines' /etc/hosts, names by address: { \"192.168.1.5\" = [\"nas.lan\"] }. Pods do not see them."
  type        = map(list(string))
  default     = {}

  validation {
    condition     = alltrue([for address, names in var.extra_hosts : can(cidrhost("${address}/32", 0)) || can(regex(":", address))])
    error_message = "A key of extra_hosts is an address, and its value a list of names."
  }

  validation {
    condition     = alltrue([for names in values(var.extra_hosts) : length(names) > 0])
    error_message = "An address in extra_hosts has at least one name."
  }
}
