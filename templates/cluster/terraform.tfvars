# Every value here is a placeholder. No secret belongs here: they are in
# Infisical, in the folder /ephemeral-castle/<cluster>/<platform>.

infisical_project_id   = "00000000-0000-0000-0000-000000000000"
infisical_project_slug = "my-project"

proxmox_endpoint  = "https://192.0.2.10:8006/"
proxmox_node_name = "pve"

network = {
  gateway = "192.0.2.1"
  dns     = ["192.0.2.1"]
}

vip         = "192.0.2.20"
vm_id_range = { first = 401, last = 409 }

nodes = {
  cp-01     = { role = "controlplane", vm_id = 401, address = "192.0.2.21" }
  worker-01 = { role = "worker", vm_id = 402, address = "192.0.2.22", longhorn_disk = 40 }
}

metallb_addresses = ["192.0.2.40-192.0.2.49"]

git_url  = "https://git.example.com/me/cluster.git"
git_path = "./clusters/my-cluster"
