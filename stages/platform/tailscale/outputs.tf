output "tailscale" {
  description = "Auth key of each machine, its tags by host name, and how castle asks the tailnet for its devices. platform/talos reads it."
  sensitive   = true

  value = {
    auth_keys     = { for name, key in tailscale_tailnet_key.machine : name => key.key }
    tags          = { for name, key in tailscale_tailnet_key.machine : "${var.cluster_name}-${name}" => key.tags }
    api           = var.tailscale_api
    client_id     = var.tailscale_oauth_client_id
    client_secret = var.tailscale_oauth_client_secret
  }
}

output "tailscale_keys_expire" {
  description = "By host name, when the key of each machine expires."
  value       = { for name, key in tailscale_tailnet_key.machine : "${var.cluster_name}-${name}" => key.expires_at }
}
