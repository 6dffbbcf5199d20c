output "serviceaccount_private_key_pem" {
  description = "Key that signs the cluster's ServiceAccount tokens."
  value       = tls_private_key.serviceaccount.private_key_pem
  sensitive   = true
}

output "serviceaccount_public_key_pem" {
  description = "Key that verifies the cluster's ServiceAccount tokens."
  value       = tls_private_key.serviceaccount.public_key_pem
}

output "database_admin_password" {
  description = "Password of the database user admin."
  value       = random_password.database["admin"].result
  sensitive   = true
}

output "database_passwords" {
  description = "Password of each login role of the database's users, by role: <user> and <user>-alt."
  value       = { for role, password in random_password.database : role => password.result }
  sensitive   = true
}

output "database_logins" {
  description = "Login role that clients use, by database user. castle sets the one that a rotation has made it."
  value       = { for user in var.database_users : user => user }
}

output "talos_machine_secrets" {
  description = "Talos' machine secrets: what the machine configurations are made from."
  value       = talos_machine_secrets.cluster.machine_secrets
  sensitive   = true
}

output "talos_client_configuration" {
  description = "Certificate and key of Talos' administrator."
  value       = local.talos_client_configuration
  sensitive   = true
}

output "talosconfig" {
  description = "talosconfig without addresses, for machines that are up although their platform stage is not. The platform's own names its endpoints."
  value       = data.talos_client_configuration.cluster.talos_config
  sensitive   = true
}

output "talos_contract" {
  description = "Minor release of Talos in whose format the secrets were made."
  value       = regex("^v[0-9]+\\.[0-9]+", talos_machine_secrets.cluster.talos_version)
}
