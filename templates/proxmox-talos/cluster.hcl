# {{ .cluster }}: its stages. `castle stage show SOURCE` shows what each
# creates, requires and checks. The values are in terraform.tfvars.

cluster {
  protect = false # true: destroy and recreate refuse
}
{{ if eq .secrets "local" }}
stage "local" { source = "secrets/local" } # secrets.tfvars
{{- else if eq .secrets "vault" }}
stage "vault" { source = "secrets/vault" }
{{- else }}
stage "infisical" { source = "secrets/infisical" }
{{- end }}
stage "keys" { source = "secrets/keys" }

stage "proxmox-image" { source = "platform/proxmox-image" }
stage "proxmox-talos" { source = "platform/proxmox-talos" }
{{- if eq .secrets "infisical" }}
stage "infisical-access" { source = "platform/infisical-access" }

stage "external-secrets" { source = "engine/external-secrets" }
stage "secret-store" { source = "engine/secret-store" }
{{- end }}

stage "metallb" { source = "networking/metallb" }
stage "address-pool" { source = "networking/address-pool" }

stage "longhorn" { source = "storage/longhorn" }

stage "flux" { source = "gitops/flux" }
stage "sync" { source = "gitops/sync" }
