# The extension joins the tailnet once, with a key that is dead then: a changed key alone is no reason to log in.
locals {
  tailscale_patches = {
    for name, machine in var.machines : name => nonsensitive(var.tailscale == null) ? [] : [yamlencode({
      apiVersion = "v1alpha1"
      kind       = "ExtensionServiceConfig"
      name       = "tailscale"
      environment = concat(
        [
          "TS_AUTHKEY=${lookup(var.tailscale.auth_keys, name, "")}",
          "TS_HOSTNAME=${var.cluster_name}-${name}",
          "TS_AUTH_ONCE=true",
        ],
        length(var.tailscale_extra_args) == 0 ? [] : ["TS_EXTRA_ARGS=${join(" ", var.tailscale_extra_args)}"],
      )
    })]
  }
}
