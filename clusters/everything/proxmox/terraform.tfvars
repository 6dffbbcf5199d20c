# No secret belongs here: they are in Infisical, in the folder
# /ephemeral-castle/everything/proxmox. Lines that end in CHANGE are placeholders.

infisical_host        = "https://eu.infisical.com"
infisical_project_id  = "8f3c1d52-6a0e-4b7f-9d21-5e4c7a90b6d3" # CHANGE: Project settings, "Copy project id"
infisical_environment = "prod"

infisical_optional_secrets = ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "GIT_USERNAME", "SSH_PRIVATE_KEY", "SSH_PUBLIC_KEY"]

proxmox_endpoint        = "https://192.168.1.10:8006/" # CHANGE: the host's address
proxmox_ca_file         = "/etc/ssl/certs/ca-certificates.crt"
proxmox_insecure        = false
proxmox_node_name       = "proxmox"
proxmox_pool            = "everything" # must exist: pveum pool add everything
proxmox_image_datastore = "local"
proxmox_disk_datastore  = "local-lvm"

network = {
  gateway = "192.168.1.1"
  prefix  = 24
  bridge  = "vmbr0"
  vlan_id = 10
  dns     = ["192.168.1.1"]
}

# Beside the other clusters: ids, addresses and pool are its own.
vip         = "192.168.1.174"
vm_id_range = { first = 491, last = 494 }

machine_defaults = {
  all = {
    cores           = 2
    cpu_type        = "host"
    cpu_units       = 100
    numa            = false
    memory          = 4096
    memory_floating = 0
    machine_type    = "q35"
    bios            = "seabios"
    tpm             = false
    startup         = { order = 2 }
    dhcp            = false
    datastore_id    = "local-lvm"
    system_disk     = 20
    bridge          = "vmbr0"
    vlan_id         = 10
    mtu             = 1
    network_devices = []
    pci             = []
    usb             = []
  }
  controlplane = {
    startup = { order = 1, up_delay = 30, down_delay = 60 }
    disks   = { scsi2 = { size = 5, datastore_id = "fast" } }

    network_devices = [{ bridge = "vmbr2", vlan_id = 20, mtu = 1400 }]

    pci = [{ mapping = "function", pcie = true, rombar = true, primary_gpu = false }]
    usb = [{ mapping = "stick", usb3 = false }]
  }
  worker = {
    memory                = 16384
    image                 = "local:import/golden-talos-v1.13.0.qcow2"
    longhorn_disk         = 40
    longhorn_datastore_id = "fast"
  }
}

nodes = {
  cp-01 = { role = "controlplane", vm_id = 491, address = "192.168.1.175" }

  worker-01 = {
    role      = "worker"
    vm_id     = 492
    address   = "192.168.1.176"
    dhcp      = true # reserved for mac_address
    node_name = "proxmox"

    cores           = 4
    cpu_type        = "x86-64-v3"
    cpu_units       = 200
    numa            = true
    memory          = 8192
    memory_floating = 6144
    machine_type    = "q35"
    bios            = "ovmf"
    tpm             = true
    startup         = { order = 3, up_delay = 10, down_delay = 120 }

    image                 = "local-lvm:base-9000-disk-0" # the disk of a template
    datastore_id          = "nvme"
    system_disk           = 32
    longhorn_disk         = 80
    longhorn_datastore_id = "local-lvm"
    disks                 = { scsi2 = { size = 10 }, scsi3 = { size = 20, datastore_id = "fast" } }

    bridge      = "vmbr1"
    vlan_id     = 0
    mac_address = "BC:24:11:2A:3B:4C"
    mtu         = 1400
    network_devices = [
      { bridge = "vmbr2", vlan_id = 20, mac_address = "BC:24:11:2A:3B:4D", mtu = 1500, address = "10.0.20.162/24", routes = { "10.0.0.0/16" = "10.0.20.1" } },
      {},
    ]

    pci = [{ mapping = "gpu", pcie = true, rombar = false, primary_gpu = true }, { mapping = "nic" }]
    usb = [{ mapping = "zigbee", usb3 = true }]
  }
}

# renovate: datasource=github-releases depName=siderolabs/talos
talos_version  = "v1.13.0"
talos_contract = "v1.13"
# renovate: datasource=github-releases depName=kubernetes/kubernetes extractVersion=^v(?<version>.*)$
kubernetes_version  = "1.36.3"
talos_image_factory = "factory.talos.dev"

serviceaccount_issuer = "https://everything.example.org"
apiserver_extra_args  = { profiling = "false" }

talos_config_patches              = ["machine: { sysctls: { net.core.somaxconn: \"4096\" } }"]
talos_controlplane_config_patches = ["machine: { nodeAnnotations: { example.org/role: controlplane } }"]
talos_worker_config_patches       = ["machine: { nodeLabels: { example.org/gpu: \"true\" } }"]

talos_machine_config_patches = { worker-01 = ["machine: { sysctls: { vm.max_map_count: \"262144\" } }"] }
talos_extensions             = ["siderolabs/iscsi-tools", "siderolabs/util-linux-tools"]
talos_machine_schematics = {
  worker    = { extensions = ["siderolabs/qemu-guest-agent"] }
  worker-01 = { extensions = ["siderolabs/i915"] }
  cp-01     = { id = "376567988ad370138ad8b2698212367b8edcb69b5fd68c80be1f2ec7d603b4ba" } # no extensions
}

node_labels      = { worker-01 = { "topology.kubernetes.io/zone" = "rack-1" } }
node_annotations = { worker = { "example.org/owner" = "me" } }
node_taints      = { worker-01 = { "example.org/gpu" = "present:PreferNoSchedule" } }

allow_scheduling_on_controlplanes = true

registry_mirrors = {
  "docker.io" = { endpoints = ["https://cache.example.org/v2/docker.io"], override_path = true, skip_fallback = false }
}

http_proxy  = { http = "http://proxy.lan:3128", https = "http://proxy.lan:3128", no_proxy = ["192.168.1.0/24", ".lan"] }
ntp_servers = ["192.168.1.1"]
extra_hosts = { "192.168.1.5" = ["nas.lan"] }
