# No secret belongs here: they are in Infisical, in the folder
# /ephemeral-castle/csi/hcloud. Lines that end in CHANGE are placeholders.

infisical_project_id = "8f3c1d52-6a0e-4b7f-9d21-5e4c7a90b6d3" # CHANGE: Project settings, "Copy project id"

# This cluster has neither Proxmox nor Flux. Its folder holds HCLOUD_TOKEN alone.
infisical_optional_secrets = [
  "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "ESO_CLIENT_ID", "ESO_CLIENT_SECRET", "GITHUB_TOKEN", "GIT_USERNAME", "PROXMOX_TOKEN_ID",
  "PROXMOX_TOKEN_SECRET", "SSH_PRIVATE_KEY", "SSH_PUBLIC_KEY",
]

hcloud_endpoint      = "https://api.hetzner.cloud/v1"
hcloud_location      = "fsn1"
hcloud_server_type   = "cx33"
hcloud_architectures = ["x86"]

network = {
  ip_range = "10.20.0.0/16"
  subnet   = "10.20.1.0/24"
  zone     = "eu-central"
}

api_endpoint              = "10.20.1.5" # the load balancer
hcloud_load_balancer_type = "lb11"
hcloud_api_public         = false

# A volume is in the location of the node for which it was made.
nodes = {
  cp-01     = { role = "controlplane", address = "10.20.1.11" }
  worker-01 = { role = "worker", address = "10.20.1.21", location = "nbg1" }
}

# renovate: datasource=github-releases depName=siderolabs/talos
talos_version = "v1.13.0"
# renovate: datasource=github-releases depName=kubernetes/kubernetes extractVersion=^v(?<version>.*)$
kubernetes_version = "1.36.3"

# The stage hcloud-controller gives nodes their provider id, and Services load balancers.
external_cloud_provider = true

# A Service that Talos makes with the cluster has to get its load balancer. It has no Pods, so nobody answers there.
hcloud_ingress = { namespace = "default", service = "web", answers = false }

talos_controlplane_config_patches = [
  <<-EOT
    cluster:
      inlineManifests:
        - name: web
          contents: |
            apiVersion: v1
            kind: Service
            metadata:
              name: web
              namespace: default
              annotations:
                load-balancer.hetzner.cloud/private-ipv4: 10.20.1.200
            spec:
              type: LoadBalancer
              selector: { app: web }
              ports: [{ port: 443 }]
  EOT
]

hcloud_csi_class_name       = "hcloud-volumes"
hcloud_csi_reclaim_policy   = "Delete"
hcloud_csi_chart_repository = "https://charts.hetzner.cloud"
hcloud_csi_chart_version    = "2.22.1"
hcloud_csi_values           = ["metrics: { enabled: false }"]
