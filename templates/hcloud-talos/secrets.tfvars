%{ if secrets == "local" ~}
# The secrets of ${cluster}: for your eyes only (mode 0600), and never in Git. castle refuses the file if others can read it.
# What may stay empty is listed in terraform.tfvars (local_optional_secrets).

local_secrets = {
  HCLOUD_TOKEN = "" # an API token of the project, with the permission Read & Write
%{ if substr(git_url, 0, 6) == "ssh://" ~}
  GIT_SSH_PRIVATE_KEY = "" # Flux reads the Git repository with it: the text of a deploy key, as <<EOT
  GIT_SSH_KNOWN_HOSTS = "" # what ssh-keyscan prints for the Git server
%{ else ~}
  GITHUB_TOKEN = "" # Flux reads the Git repository with it
%{ endif ~}
}
%{ endif ~}
