stage {
  summary = "Creates shared secrets: ServiceAccount keys, passwords, Talos' secrets"

  inputs = {
    cluster_name = cluster.name
  }
}
