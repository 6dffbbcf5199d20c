stage {
  summary = "A key for each machine, with which it joins a tailnet once"

  inputs = {
    cluster_name                  = cluster.name
    tailscale_machines            = platform.machines
    tailscale_oauth_client_id     = secrets.tailscale_oauth_client_id
    tailscale_oauth_client_secret = secrets.tailscale_oauth_client_secret
  }
}

# A device that has a machine's name would leave it the name with -1. A destroy removes the devices that the
# keys in the state have admitted, and proves that none is left.
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
