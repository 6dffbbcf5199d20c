variable "sync_namespace" {
  description = "Flux's namespace. castle wires it."
  type        = string
}

variable "sync_cluster_name" {
  description = "Name of the cluster, for cluster-vars. castle wires it."
  type        = string
}

variable "git_url" {
  description = "Repository that Flux follows: https://…, ssh://git@… with a deploy key, or http://… in a private network."
  type        = string

  validation {
    condition     = can(regex("^(https?://[^/@]+|ssh://[^/@:]+@[^/@:]+(:[0-9]+)?)/.+$", var.git_url))
    error_message = "git_url is a https:// address without credentials in it, or ssh://git@<host>/<path>. ssh://git@github.com/me/fleet is what git@github.com:me/fleet means."
  }
}

variable "git_branch" {
  description = "Branch that Flux follows."
  type        = string
  default     = "main"

  validation {
    condition     = can(regex("^[^-/\\s~^:?*\\[\\\\][^\\s~^:?*\\[\\\\]*$", var.git_branch)) && !startswith(var.git_branch, "refs/")
    error_message = "git_branch is the name of a branch, such as main."
  }
}

variable "sync_substitutes" {
  description = "Whether Flux substitutes cluster_vars also in git_path itself, such as in the path of a Kustomization. Text like $${NAME} there that is none of them becomes empty."
  type        = bool
  default     = false
}

variable "git_path" {
  description = "Folder of this cluster in the repository."
  type        = string

  validation {
    condition     = startswith(var.git_path, "./")
    error_message = "git_path begins with ./, such as ./clusters/blue."
  }

  validation {
    condition     = !contains(split("/", var.git_path), "..")
    error_message = "git_path does not contain ..: Flux never leaves the repository, and reads another folder than meant."
  }
}

variable "git_username" {
  description = "User name for the repository. castle wires it from the secrets layer."
  type        = string
}

variable "git_token" {
  description = "Token for the repository over HTTP. castle wires it from the secrets layer."
  type        = string
  sensitive   = true
}

variable "git_ssh_private_key" {
  description = "Private key for the repository over SSH, in OpenSSH's format. castle wires it from the secrets layer."
  type        = string
  default     = null
  sensitive   = true
}

variable "git_ssh_known_hosts" {
  description = "Public keys of the Git server, as ssh-keyscan prints them. castle wires them from the secrets layer."
  type        = string
  default     = null
}

variable "cluster_vars" {
  description = "What the repository's manifests may substitute (postBuild.substituteFrom), such as traefik_lb_ip. No secrets: it is a ConfigMap."
  type        = map(string)
  default     = {}

  validation {
    condition     = alltrue([for name in keys(var.cluster_vars) : can(regex("^[_a-zA-Z][_a-zA-Z0-9]*$", name))])
    error_message = "A name in cluster_vars consists of letters, digits and underscores, as Flux's substitution wants it."
  }
}

variable "sync_source_interval" {
  description = "How often Flux looks at the repository."
  type        = string
  default     = "1m"

  validation {
    condition     = can(regex("^([0-9]+(\\.[0-9]+)?(ms|s|m|h))+$", var.sync_source_interval))
    error_message = "sync_source_interval is a duration in h, m, s and ms, such as 1m30s."
  }
}

variable "sync_interval" {
  description = "How often Flux applies what it has, changed or not."
  type        = string
  default     = "10m"

  validation {
    condition     = can(regex("^([0-9]+(\\.[0-9]+)?(ms|s|m|h))+$", var.sync_interval))
    error_message = "sync_interval is a duration in h, m, s and ms, such as 1m30s."
  }
}
