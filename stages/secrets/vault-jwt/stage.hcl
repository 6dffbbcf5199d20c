stage {
  summary    = "Lets Vault verify the cluster's ServiceAccounts before there is a cluster"
  persistent = true

  inputs = {
    vault_jwt_cluster             = cluster.name
    serviceaccount_public_key_pem = secrets.serviceaccount_public_key_pem
  }
}
