terraform {
  required_version = ">= 1.9"

  required_providers {
    tailscale = {
      source  = "registry.terraform.io/tailscale/tailscale"
      version = "~> 0.29.0"
    }
  }
}
