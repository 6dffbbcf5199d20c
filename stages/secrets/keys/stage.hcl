stage {
  summary = "Makes what must have one source: ServiceAccount keys, passwords, Talos' secrets"

  inputs = {
    cluster_name = cluster.name
  }
}
