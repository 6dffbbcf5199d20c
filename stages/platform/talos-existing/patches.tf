# The patches that castle adds to Talos' own machine configuration, one document per patch.
locals {
  patches = [
    yamlencode({
      machine = {
        # For Longhorn: iSCSI targets and network block devices.
        kernel = {
          modules = [for name in ["nbd", "iscsi_tcp", "configfs"] : { name = name }]
        }
      }
    }),
  ]

  apiserver_args = merge(
    var.apiserver_extra_args,
    var.serviceaccount_issuer == null ? {} : { service-account-issuer = var.serviceaccount_issuer },
  )

  controlplane_patches = [
    yamlencode({
      cluster = {
        apiServer = merge(
          # Only the API server's names: machine.certSANs would also change trustd's.
          { certSANs = distinct(concat([var.vip], [for name in local.controlplanes : local.addresses[name]])) },
          length(local.apiserver_args) > 0 ? { extraArgs = local.apiserver_args } : {},
        )
        serviceAccount = { key = base64encode(var.serviceaccount_private_key_pem) }
      }
    }),
    # The VIP selects the card, whatever its name (eno1, enp3s0).
    yamlencode({
      apiVersion = "v1alpha1"
      kind       = "LinkAliasConfig"
      name       = "uplink"
      selector   = { match = var.talos_uplink }
    }),
    yamlencode({
      apiVersion = "v1alpha1"
      kind       = "Layer2VIPConfig"
      name       = var.vip
      link       = "uplink"
    }),
  ]

  node_patches = {
    for name, node in var.nodes : name => concat(
      [
        yamlencode({
          machine = {
            install = {
              disk = node.install_disk
              # The provider would name its own Talos release, without the extensions.
              image = "${var.talos_image_factory}/${var.talos_platform}-installer/${var.talos_schematic_id}:${var.talos_version}"
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
      ],
      # The disk gets one partition, which is mounted at /var/mnt/longhorn. After a reset it is found and used again.
      [
        for disk in node.longhorn_disk[*] : yamlencode({
          apiVersion = "v1alpha1"
          kind       = "UserVolumeConfig"
          name       = "longhorn"
          provisioning = {
            diskSelector = { match = "!system_disk && (disk.dev_path == \"${disk}\" || \"${disk}\" in disk.symlinks)" }
            minSize      = "5GiB"
            grow         = true
          }
        })
      ],
    )
  }

  # The kubelet sees that volume where Longhorn expects its data.
  longhorn_patches = [
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
