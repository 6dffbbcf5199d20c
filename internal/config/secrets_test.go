package config

import (
	"slices"
	"testing"
)

func TestSecretsComeFromSecretsFileAndSensitiveVariables(t *testing.T) {
	got := loaded(t, `-- clusters/blue/proxmox/cluster.hcl --
stage "seed" { source = "secrets/seed" }
stage "other" { source = "secrets/other" }
-- clusters/blue/proxmox/terraform.tfvars --
node = "pve"
pair = { key = "in-a-sensitive-object" }
-- clusters/blue/proxmox/secrets.tfvars --
password = "in-the-secrets-file"
-- library/secrets/seed/stage.hcl --
stage {}
-- library/secrets/seed/main.tf --
variable "password" { type = string }
variable "node" { type = string }
variable "pair" {
  type      = map(string)
  sensitive = true
}
variable "token" {
  type      = string
  sensitive = true
}
-- library/secrets/other/stage.hcl --
stage {}
-- library/secrets/other/main.tf --
variable "password" { type = string }
`, func(o *Options) { o.Environ = []string{"TF_VAR_token=in-the-environment"} }).Secrets()
	if want := []string{"in-a-sensitive-object", "in-the-environment",
		"in-the-secrets-file"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
