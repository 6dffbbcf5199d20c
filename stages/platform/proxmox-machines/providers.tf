# The provider has no argument for a CA: it trusts the system's store and the files in SSL_CERT_FILE
# and SSL_CERT_DIR. castle's own preflight trusts proxmox_ca_file.
provider "proxmox" {
  endpoint  = var.proxmox_endpoint
  api_token = var.proxmox_api_token
  insecure  = var.proxmox_insecure
}
