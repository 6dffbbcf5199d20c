stage {
  summary  = "Reads the cluster's secrets from Infisical"
  volatile = true

  inputs = {
    infisical_folder = "/ephemeral-castle/${cluster.name}/${cluster.platform}"
  }
}
