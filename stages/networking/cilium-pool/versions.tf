terraform {
  required_version = ">= 1.9"

  required_providers {
    helm = {
      source  = "registry.terraform.io/hashicorp/helm"
      version = "~> 3.1"
    }
    kubernetes = {
      source  = "registry.terraform.io/hashicorp/kubernetes"
      version = "~> 3.2"
    }
  }
}
