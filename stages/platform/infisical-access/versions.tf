terraform {
  required_version = ">= 1.9"

  required_providers {
    infisical = {
      source  = "infisical/infisical"
      version = "~> 0.19"
    }
  }
}
