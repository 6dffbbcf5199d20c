variable "sync_namespace" {
  description = "Flux's namespace. castle wires it."
  type        = string
}

variable "sync_cluster_name" {
  description = "Name of the cluster, for cluster-vars. castle wires it."
  type        = string
}

variable "git_url" {
  description = "Repository that Flux follows: https://…, ssh://git@… with a deploy key, or http://… in a private network. Or an artifact, as `flux push artifact` makes it: oci://ghcr.io/me/fleet."
  type        = string

  validation {
    condition     = can(regex("^(https?://[^/@]+|ssh://[^/@:]+@[^/@:]+(:[0-9]+)?|oci://[^/@:]+(:[0-9]+)?)/.+$", var.git_url))
    error_message = "git_url is a https:// address without credentials in it, or ssh://git@<host>/<path>. ssh://git@github.com/me/fleet is what git@github.com:me/fleet means."
  }

  validation {
    condition     = !startswith(var.git_url, "oci://") || can(regex("^oci://[^/]+/[^:@]+$", var.git_url))
    error_message = "The address of an artifact, oci://<registry>/<path>, has no tag and no digest: those are oci_tag, oci_semver and oci_digest."
  }
}

variable "oci_tag" {
  description = "Tag that Flux follows; null for latest."
  type        = string
  default     = null

  validation {
    condition     = var.oci_tag == null || can(regex("^[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$", var.oci_tag))
    error_message = "oci_tag is a tag, such as main or v1.2.3."
  }
}

variable "oci_semver" {
  description = "Range of versions, of which Flux follows the newest tag, such as >=1.0.0 <2.0.0; null for oci_tag. castle does not evaluate it."
  type        = string
  default     = null
}

variable "oci_digest" {
  description = "Digest of the one artifact that Flux applies, such as sha256:…; null for oci_semver and oci_tag."
  type        = string
  default     = null

  validation {
    condition     = var.oci_digest == null || can(regex("^sha256:[0-9a-f]{64}$", var.oci_digest))
    error_message = "oci_digest is sha256: and 64 hexadecimal digits."
  }
}

variable "oci_insecure" {
  description = "Whether the registry may speak HTTP, or TLS with any certificate: in a private network alone."
  type        = bool
  default     = false
}

variable "oci_auths" {
  description = "Credentials of registries in the format of Docker's config.json; Flux gets those of git_url's. null: the artifact is public. castle wires it from the secrets layer."
  type        = string
  default     = null
  sensitive   = true
}

variable "sync_ca_certificate" {
  description = "Certificate, in PEM, of the authority that signed the one of git_url's server; null for a public one."
  type        = string
  default     = null

  validation {
    condition     = var.sync_ca_certificate == null || can(regex("-----BEGIN CERTIFICATE-----", var.sync_ca_certificate))
    error_message = "sync_ca_certificate is a certificate in PEM, such as the text of file(\"ca.pem\") in cluster.hcl."
  }
}

variable "sync_sops_age" {
  description = "Whether Flux decrypts, with the age key of the secrets layer (SOPS_AGE_KEY), what SOPS has encrypted: in git_path itself, and for each Kustomization there that names the Secret sops-age."
  type        = bool
  default     = false
}

variable "sops_age_key" {
  description = "The key, as age-keygen writes it. castle wires it from the secrets layer."
  type        = string
  default     = null
  sensitive   = true
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
  description = "Folder of this cluster in the repository or artifact."
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
