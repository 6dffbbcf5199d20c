variable "cilium_nodes" {
  description = "Address of each node, by name. castle wires it."
  type        = map(string)
}

variable "cilium_chart_repository" {
  description = "Helm repository of the chart cilium."
  type        = string
  default     = "https://helm.cilium.io"
}

variable "cilium_chart_version" {
  description = "Version of the chart cilium. `castle check` names those that do not work on Talos without kube-proxy."
  type        = string
  default     = "1.18.6"

  validation {
    condition     = can(regex("^[0-9]+\\.[0-9]+\\.[0-9]+$", var.cilium_chart_version))
    error_message = "cilium_chart_version is an exact version, such as 1.18.6."
  }
}

variable "cilium_routing_mode" {
  description = "How Pods reach those of another node: tunnel (VXLAN, works everywhere), or native (routes between nodes of one network)."
  type        = string
  default     = "tunnel"

  validation {
    condition     = contains(["tunnel", "native"], var.cilium_routing_mode)
    error_message = "cilium_routing_mode is tunnel or native."
  }
}

variable "cilium_pod_cidr" {
  description = "The network of Pods, in which native routing does not translate addresses. The default is the one of pod_subnets, or Talos' own."
  type        = string
  default     = null

  validation {
    condition     = var.cilium_pod_cidr == null || can(cidrhost(var.cilium_pod_cidr, 0))
    error_message = "cilium_pod_cidr is a network such as 10.244.0.0/16."
  }

  validation {
    condition = var.cilium_pod_cidr == null || var.cilium_routing_mode == "tunnel" || try(alltrue([
      for subnet in coalesce(var.cilium_pod_subnets, ["10.244.0.0/16"]) :
      cidrhost("${cidrhost(subnet, 0)}/${split("/", var.cilium_pod_cidr)[1]}", 0) == cidrhost(var.cilium_pod_cidr, 0) &&
      tonumber(split("/", var.cilium_pod_cidr)[1]) <= tonumber(split("/", subnet)[1]) if !can(regex(":", subnet))
    ]), false)
    error_message = "cilium_pod_cidr does not hold the network of Pods in pod_subnets: with native routing, Pods would reach others under their node's address. Remove cilium_pod_cidr."
  }
}

variable "cilium_pod_subnets" {
  description = "Networks of Pods; null: Talos' own. castle wires it."
  type        = list(string)
  default     = null
}

variable "cilium_bgp" {
  description = "Routers to which networking/cilium-pool announces addresses by BGP; null: Cilium speaks no BGP."
  type        = object({ local_asn = number, peers = map(object({ address = string, asn = number })) })
  default     = null
}

variable "cilium_values" {
  description = "Further values of the chart (YAML), applied last."
  type        = list(string)
  default     = []
}
