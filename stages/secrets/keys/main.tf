# Keys and passwords that several layers share are created once, in the first layer.
# They must not change while the cluster exists: hence every ignore_changes below.

# Signs the ServiceAccount tokens. It exists before the cluster, so that other
# services can be given its public key in advance.
resource "tls_private_key" "serviceaccount" {
  algorithm = "RSA"
  rsa_bits  = 2048
}

resource "random_password" "database" {
  for_each = var.database_users

  length  = var.database_password_length
  special = false # passwords end up in connection URLs

  lifecycle {
    ignore_changes = [length, special]
  }
}

# Talos' and Kubernetes' own authorities, tokens and encryption keys.
resource "talos_machine_secrets" "cluster" {
  talos_version = var.talos_contract

  lifecycle {
    ignore_changes = [talos_version]
  }
}

data "talos_client_configuration" "cluster" {
  cluster_name         = var.cluster_name
  client_configuration = talos_machine_secrets.cluster.client_configuration
}
