terraform {
  required_version = ">= 1.9"

  required_providers {
    kubernetes = {
      source  = "registry.terraform.io/hashicorp/kubernetes"
      version = "~> 3.2"
    }
  }
}
