# The provider reads the machine identity from INFISICAL_UNIVERSAL_AUTH_CLIENT_ID and
# INFISICAL_UNIVERSAL_AUTH_CLIENT_SECRET. It is the only secret that a user holds.
provider "infisical" {
  host = var.infisical_host

  auth = {
    universal = {}
  }
}
