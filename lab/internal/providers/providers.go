// Package providers lists the Terraform providers that the lab has stand-ins
// for. It is only the table, so that castle-lab can lay out a filesystem mirror
// without linking Helm; cmd/lab-providers binds each row to its code in the
// packages below this one.
package providers

// Provider is one provider as Terraform knows it.
type Provider struct {
	Source  string // hashicorp/random, below registry.terraform.io
	Version string // the release whose schema and behaviour it stands in for
	Type    string // random
}

// Binary is the file name by which Terraform finds the provider, and by which
// lab-providers knows which one to be.
func (p Provider) Binary() string { return "terraform-provider-" + p.Type + "_v" + p.Version }

// Providers returns all stand-ins.
func Providers() []Provider {
	return []Provider{
		{Source: "hashicorp/helm", Version: "3.1.2", Type: "helm"},
		{Source: "hashicorp/kubernetes", Version: "3.2.1", Type: "kubernetes"},
		{Source: "hashicorp/random", Version: "3.9.0", Type: "random"},
		{Source: "hashicorp/tls", Version: "4.2.1", Type: "tls"},
		{Source: "hashicorp/vault", Version: "5.10.1", Type: "vault"},
		{Source: "infisical/infisical", Version: "0.19.24", Type: "infisical"},
		{Source: "siderolabs/talos", Version: "0.10.1", Type: "talos"},
		{Source: "tailscale/tailscale", Version: "0.29.2", Type: "tailscale"},
	}
}
