provider "tailscale" {
  oauth_client_id     = var.tailscale_oauth_client_id
  oauth_client_secret = var.tailscale_oauth_client_secret
  base_url            = var.tailscale_api
}

# Each key admits one device, and is dead then: the state holds nothing that admits another one. One that no
# machine uses expires.
resource "tailscale_tailnet_key" "machine" {
  for_each = var.tailscale_machines

  description   = "${var.cluster_name}-${each.key}"
  tags          = var.tailscale_tags
  preauthorized = true
  reusable      = false
  ephemeral     = false
  expiry        = var.tailscale_key_expiry

  # A key that has been used is gone, and its machine needs no other one.
  recreate_if_invalid = "never"

  lifecycle {
    # They are of the moment when the key was made.
    ignore_changes = [description, tags, expiry]

    precondition {
      condition     = var.tailscale_oauth_client_id != null && var.tailscale_oauth_client_secret != null
      error_message = "The secrets layer lacks the OAuth client that makes the machines' keys (TAILSCALE_OAUTH_CLIENT_ID, TAILSCALE_OAUTH_CLIENT_SECRET), with the scopes auth_keys and devices:core, and the tags in tailscale_tags."
    }
  }
}
