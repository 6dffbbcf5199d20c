# Keys and passwords that several layers share are created once, in the first layer.
# They must not change while the cluster exists: hence every ignore_changes below.

# Signs the ServiceAccount tokens. It exists before the cluster, so that other
# services can be given its public key in advance.
resource "tls_private_key" "serviceaccount" {
  algorithm = "RSA"
  rsa_bits  = 2048
}

# Each database user has a second login role. castle rotate replaces the password of the one that clients do
# not use, and then has them use it.
resource "random_password" "database" {
  for_each = setunion(var.database_users, [for user in var.database_users : "${user}-alt"])

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

# The certificate of Talos' administrator. talos_machine_secrets has one, too, and renews it in its last month
# only. castle credentials renew replaces this one at any time, also after it has expired.
resource "tls_private_key" "talos_admin" {
  algorithm = "ED25519"
}

resource "tls_cert_request" "talos_admin" {
  private_key_pem = tls_private_key.talos_admin.private_key_pem

  subject {
    organization = "os:admin" # Talos reads the roles there
  }
}

resource "tls_locally_signed_cert" "talos_admin" {
  cert_request_pem = tls_cert_request.talos_admin.cert_request_pem
  ca_cert_pem      = base64decode(local.talos_ca.cert)
  # Talos writes PKCS #8 under a name of its own.
  ca_private_key_pem = replace(base64decode(local.talos_ca.key), "ED25519 PRIVATE KEY", "PRIVATE KEY")

  allowed_uses          = ["digital_signature", "client_auth"]
  validity_period_hours = 365 * 24
  early_renewal_hours   = 30 * 24
}

locals {
  talos_ca = talos_machine_secrets.cluster.machine_secrets.certs.os

  talos_client_configuration = {
    ca_certificate     = local.talos_ca.cert
    client_certificate = base64encode(tls_locally_signed_cert.talos_admin.cert_pem)
    client_key         = base64encode(tls_private_key.talos_admin.private_key_pem)
  }
}

data "talos_client_configuration" "cluster" {
  cluster_name         = var.cluster_name
  client_configuration = local.talos_client_configuration
}
