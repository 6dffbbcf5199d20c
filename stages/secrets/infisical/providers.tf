# The machine identity comes from INFISICAL_UNIVERSAL_AUTH_CLIENT_ID and
# INFISICAL_UNIVERSAL_AUTH_CLIENT_SECRET: it is the one secret that a user holds.
provider "infisical" {
  host = var.infisical_host

  auth = {
    universal = {}
  }
}
