# No secret belongs here: they are in Vault, in ephemeral-castle/tazlab/proxmox below
# secret. Lines that end in CHANGE are placeholders.

vault_address = "https://vault.example.org:8200" # CHANGE: it stands outside of the cluster

# External Secrets reads Vault with a token.
vault_optional_secrets = ["ESO_CLIENT_ID", "ESO_CLIENT_SECRET", "GIT_USERNAME", "SSH_PRIVATE_KEY", "SSH_PUBLIC_KEY", "TALOS_SECRETBOX_KEY"]

# The name that the cluster's tokens carry and that Vault looks for. It need not be an address.
serviceaccount_issuer = "https://tazlab.example.org"

# The roles that may log in at auth/jwt-tazlab, and their policies.
vault_jwt_roles = {
  grafana = { namespace = "grafana", service_account = "grafana", read = ["database-tazlab/creds/grafana"] }
}

# The database that Flux deploys. Vault is outside the cluster, so the database needs an external
# address.
vault_database_host = "192.168.1.184"
vault_database_name = "tazlab"

vault_database_roles = {
  grafana = {
    creation = [
      "CREATE ROLE \"{{name}}\" WITH LOGIN PASSWORD '{{password}}' VALID UNTIL '{{expiration}}'",
      "GRANT pg_read_all_data TO \"{{name}}\"",
    ]
  }
}

bootstrap_database            = { name = "tazlab-db", namespace = "tazlab-db", s3 = true }
bootstrap_vault               = { namespace = "external-secrets" }
bootstrap_tailscale_namespace = "tailscale" # of whoever adds the operator to ../fleet

proxmox_endpoint  = "https://192.168.1.10:8006/" # CHANGE: the host's address
proxmox_node_name = "proxmox"                    # its name, as the Proxmox tree shows it
proxmox_pool      = "tazlab"                     # must exist: pveum pool add tazlab

network = {
  gateway = "192.168.1.1"
  dns     = ["192.168.1.1"]
}

# Beside blue, mini and handover: ids, addresses and pool are its own.
vip         = "192.168.1.180"
vm_id_range = { first = 471, last = 474 }

nodes = {
  cp-01     = { role = "controlplane", vm_id = 471, address = "192.168.1.181", cores = 2, memory = 4096 }
  worker-01 = { role = "worker", vm_id = 472, address = "192.168.1.182", cores = 4, memory = 16384, longhorn_disk = 80 }
}

metallb_addresses = ["192.168.1.184-192.168.1.187"]

git_url  = "https://github.com/tazzo/tazlab-fleet" # CHANGE: where ../fleet is pushed to
git_path = "./cluster"

# Longhorn's backup target, in which the volumes outlive the cluster.
longhorn_backup_target = "s3://tazlab@eu-south-1/longhorn/"
longhorn_s3_endpoint   = "https://s3.example.org" # CHANGE: for a server that is not one of AWS
