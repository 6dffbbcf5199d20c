terraform {
  required_version = ">= 1.9"

  required_providers {
    talos = {
      source  = "registry.terraform.io/siderolabs/talos"
      version = "~> 0.10.1"
    }
    proxmox = {
      source  = "registry.terraform.io/bpg/proxmox"
      version = "~> 0.111.1"
    }
  }
}
