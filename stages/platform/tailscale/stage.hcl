stage {
  summary = "A key for each machine, with which it joins a tailnet once"

  inputs = {
    cluster_name                  = cluster.name
    tailscale_machines            = platform.machines
    tailscale_oauth_client_id     = secrets.tailscale_oauth_client_id
    tailscale_oauth_client_secret = secrets.tailscale_oauth_client_secret
  }
}

# A key that has expired before its machine has joined closes this gate. The next create makes another one, as the
# preflight no longer counts the key as the stage's.
gate "tailnet_devices" "keys" {
  api           = var.tailscale_api
  client_id     = var.tailscale_oauth_client_id
  client_secret = var.tailscale_oauth_client_secret
  devices       = [for name in keys(var.tailscale_machines) : "${cluster.name}-${name}"]
  tags          = self.tailscale.tags # other tags are those of later keys
  expires       = self.tailscale_keys_expire
  timeout       = "1m"
}

# A device that has a machine's name would leave it the name with -1. castle removes a device that a key in the state
# has admitted, before the key is replaced or deleted, and proves after a destroy that none is left.
preflight "tailnet_devices" "machines" {
  api           = var.tailscale_api
  client_id     = var.tailscale_oauth_client_id
  client_secret = var.tailscale_oauth_client_secret
  devices       = [for name in keys(var.tailscale_machines) : "${cluster.name}-${name}"]
}

# A new machine has joined no tailnet, and the key of the old one has been used.
replace "tailscale_tailnet_key.machine" {
  instance = platform.instance
}
