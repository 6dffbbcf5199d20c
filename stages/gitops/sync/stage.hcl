stage {
  summary = "Points Flux at the Git repository that holds everything else"

  # What it applies asks for secrets from the first minute on.
  needs = [engine]

  inputs = {
    sync_namespace    = gitops.flux_namespace
    sync_cluster_name = cluster.name
    git_username      = secrets.git_username
    git_token         = secrets.git_token
  }
}

# Applied early, judged late: it converges only when addresses and volumes are
# there, but need not wait for them to begin.
gate "flux" "converged" {
  needs   = [networking, storage]
  timeout = "20m"
  # The root may bring further objects at any time.
  stable = 3
}
