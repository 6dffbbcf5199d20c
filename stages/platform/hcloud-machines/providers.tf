provider "hcloud" {
  endpoint = var.hcloud_endpoint
  token    = var.hcloud_token
}
