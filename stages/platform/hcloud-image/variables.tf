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

variable "talos_version" {
  description = "Talos release of the snapshot, such as v1.13.0."
  type        = string
  default     = "v1.13.0"

  validation {
    condition     = can(regex("^v[0-9]+\\.[0-9]+\\.[0-9]+$", var.talos_version))
    error_message = "talos_version is a release such as v1.13.0."
  }
}

variable "hcloud_architectures" {
  description = "Architectures of the machines' server types: x86, arm or both."
  type        = set(string)
  default     = ["x86"]

  validation {
    condition     = length(var.hcloud_architectures) > 0 && alltrue([for name in var.hcloud_architectures : contains(["x86", "arm"], name)])
    error_message = "hcloud_architectures are x86, arm or both."
  }
}

variable "talos_image_factory" {
  description = "Host name of the image factory, for the command that makes a missing snapshot."
  type        = string
  default     = "factory.talos.dev"
}

variable "talos_schematic_id" {
  description = "The image factory's id of a schematic, for that command. The default is that of siderolabs/iscsi-tools and siderolabs/util-linux-tools, which Longhorn needs."
  type        = string
  default     = "613e1592b2da41ae5e265e8789429f22e121aab91cb4deb6bc3c0b6262961245"
}
