# The patches that castle adds to Talos' own machine configuration, one document per patch.
locals {
  machine_patches = {
    for name, machine in var.machines : name => [
      yamlencode({
        machine = {
          install = {
            disk = machine.install_disk
            # The provider would name its own Talos release, without the extensions.
            image = "${var.talos_image_factory}/${machine.platform}-installer/${local.schematic_ids[name]}:${var.talos_version}"
          }
          # For Longhorn: iSCSI targets and network block devices.
          kernel = {
            modules = [for name in ["nbd", "iscsi_tcp", "configfs"] : { name = name }]
          }
        }
      }),
      # The provider emits this document with auto: stable; a fixed name needs it off.
      yamlencode({
        apiVersion = "v1alpha1"
        kind       = "HostnameConfig"
        auto       = "off"
        hostname   = "${var.cluster_name}-${name}"
      }),
    ]
  }

  apiserver_args = merge(
    var.apiserver_extra_args,
    var.serviceaccount_issuer == null ? {} : { service-account-issuer = var.serviceaccount_issuer },
  )

  controlplane_patches = {
    for name, machine in var.machines : name => [
      yamlencode({
        cluster = {
          apiServer = merge(
            # Only the API server's names: machine.certSANs would also change trustd's.
            { certSANs = distinct(concat(compact([var.vip, var.api_endpoint]), [for name in local.controlplanes : local.addresses[name]])) },
            length(local.apiserver_args) > 0 ? { extraArgs = local.apiserver_args } : {},
          )
          serviceAccount = { key = base64encode(var.serviceaccount_private_key_pem) }
        }
      }),
    ]
  }

  vip_patches = {
    for name, machine in var.machines : name => machine.role == "worker" || var.vip == null ? [] : [
      # The VIP selects the card, whatever its name.
      yamlencode({
        apiVersion = "v1alpha1"
        kind       = "LinkAliasConfig"
        name       = "uplink"
        selector   = { match = machine.uplink }
      }),
      yamlencode({
        apiVersion = "v1alpha1"
        kind       = "Layer2VIPConfig"
        name       = var.vip
        link       = "uplink"
      }),
    ]
  }

  # The disk is formatted and mounted at /var/mnt/longhorn; the kubelet sees it where Longhorn expects its data.
  longhorn_patches = {
    for name, machine in var.machines : name => machine.longhorn_disk == null ? [] : [
      yamlencode({
        apiVersion = "v1alpha1"
        kind       = "UserVolumeConfig"
        name       = "longhorn"
        provisioning = {
          diskSelector = { match = "!system_disk && (${machine.longhorn_disk})" }
          minSize      = "5GiB"
          grow         = true
        }
      }),
      yamlencode({
        machine = {
          kubelet = {
            extraMounts = [{
              destination = "/var/lib/longhorn"
              type        = "bind"
              source      = "/var/mnt/longhorn"
              options     = ["bind", "rshared", "rw"]
            }]
          }
        }
      }),
    ]
  }
}
