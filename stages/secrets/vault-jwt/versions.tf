terraform {
  required_version = ">= 1.9"

  required_providers {
    vault = {
      source  = "registry.terraform.io/hashicorp/vault"
      version = "~> 5.10"
    }
  }
}
