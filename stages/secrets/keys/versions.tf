terraform {
  required_version = ">= 1.9"

  required_providers {
    random = {
      source  = "registry.terraform.io/hashicorp/random"
      version = "~> 3.9"
    }
    talos = {
      source  = "registry.terraform.io/siderolabs/talos"
      version = "~> 0.10.1"
    }
    tls = {
      source  = "registry.terraform.io/hashicorp/tls"
      version = "~> 4.2"
    }
  }
}
