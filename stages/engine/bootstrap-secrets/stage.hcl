stage {
  summary = "Creates Secrets that operators adopt, before Flux installs the operators"

  inputs = {
    database_passwords            = secrets.database_passwords
    s3_access_key_id              = secrets.s3_access_key_id
    s3_secret_access_key          = secrets.s3_secret_access_key
    tailscale_oauth_client_id     = secrets.tailscale_oauth_client_id
    tailscale_oauth_client_secret = secrets.tailscale_oauth_client_secret
    vault_ca_cert                 = secrets.vault_ca_cert
    vault_reader_token            = secrets.vault_reader_token
  }
}
