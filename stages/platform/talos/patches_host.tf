# The patches of the world around the machines: registries, proxy, time, names. The same for every machine.
locals {
  # Docker's format calls its own registry after an older API. Talos compares with the host of an endpoint.
  registry_auths = {
    for name, auth in try(jsondecode(var.registry_auths).auths, {}) :
    (contains(["https://index.docker.io/v1/", "docker.io"], name) ? "registry-1.docker.io" : split("/", trimprefix(trimprefix(name, "https://"), "http://"))[0]) => auth
  }

  host_patches = concat(
    [
      for name, mirror in var.registry_mirrors : yamlencode({
        apiVersion   = "v1alpha1"
        kind         = "RegistryMirrorConfig"
        name         = name
        endpoints    = [for url in mirror.endpoints : merge({ url = url }, mirror.override_path ? { overridePath = true } : {})]
        skipFallback = mirror.skip_fallback
      })
    ],
    [
      for name, auth in local.registry_auths : yamlencode(merge(
        { apiVersion = "v1alpha1", kind = "RegistryAuthConfig", name = name },
        try({ username = auth.username, password = auth.password }, {}),
        try({ auth = auth.auth }, {}),
        try({ identityToken = auth.identitytoken }, {}),
      ))
    ],
    [
      for name, pem in var.registry_ca_certificates : yamlencode({
        apiVersion = "v1alpha1"
        kind       = "RegistryTLSConfig"
        name       = name
        ca         = pem
      })
    ],
    # A document would reach only services that start later, without a restart: machine.env restarts the machine.
    var.http_proxy == null ? [] : [yamlencode({
      machine = {
        env = merge(
          try(var.http_proxy.http, null) == null ? {} : { http_proxy = var.http_proxy.http },
          try(var.http_proxy.https, null) == null ? {} : { https_proxy = var.http_proxy.https },
          { no_proxy = join(",", try(var.http_proxy.no_proxy, [])) },
        )
      }
    })],
    length(var.ntp_servers) == 0 ? [] : [yamlencode({
      apiVersion = "v1alpha1"
      kind       = "TimeSyncConfig"
      ntp        = { servers = var.ntp_servers }
    })],
    [
      for address, names in var.extra_hosts : yamlencode({
        apiVersion = "v1alpha1"
        kind       = "StaticHostConfig"
        name       = address
        hostnames  = names
      })
    ],
  )
}
