%{ if secrets == "local" ~}
# The secrets of ${cluster}: for your eyes only (mode 0600), and never in Git. castle refuses the file if others can read it.
# What may stay empty is listed in terraform.tfvars (local_optional_secrets).

local_secrets = {
  GITHUB_TOKEN = "" # Flux reads the Git repository with it

  AWS_ACCESS_KEY_ID     = "" # Longhorn's backups
  AWS_SECRET_ACCESS_KEY = ""
}
%{ endif ~}
