terraform {
  required_version = ">= 1.9"

  required_providers {
    infisical = {
      source  = "registry.terraform.io/infisical/infisical"
      version = "~> 0.19"
    }
  }
}
