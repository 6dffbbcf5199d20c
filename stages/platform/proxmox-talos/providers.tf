# The provider has no argument for a CA: it trusts the system's store and what
# SSL_CERT_FILE and SSL_CERT_DIR name. proxmox_ca_file is what castle's own
# preflight trusts.
provider "proxmox" {
  endpoint  = var.proxmox_endpoint
  api_token = var.proxmox_api_token
  insecure  = var.proxmox_insecure
}
