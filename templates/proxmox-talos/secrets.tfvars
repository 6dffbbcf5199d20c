%{ if secrets == "local" ~}
# The secrets of ${cluster}: for your eyes only (mode 0600), and never in Git. castle refuses the file if others can read it.
# What may stay empty is listed in terraform.tfvars (local_optional_secrets).

local_secrets = {
  PROXMOX_TOKEN_ID     = "" # castle@pve!castle: user, realm and name of an API token
  PROXMOX_TOKEN_SECRET = ""
%{ if substr(git_url, 0, 6) == "ssh://" ~}
  GIT_SSH_PRIVATE_KEY = "" # Flux reads the Git repository with it: the text of a deploy key, as <<EOT
  GIT_SSH_KNOWN_HOSTS = "" # what ssh-keyscan prints for the Git server
%{ else ~}
  GITHUB_TOKEN         = "" # Flux reads the Git repository with it
%{ endif ~}

  AWS_ACCESS_KEY_ID     = "" # Longhorn's backups
  AWS_SECRET_ACCESS_KEY = ""
}
%{ endif ~}
