terraform {
  required_version = ">= 1.9"

  required_providers {
    proxmox = {
      source  = "registry.terraform.io/bpg/proxmox"
      version = "~> 0.111.1"
    }
  }
}
