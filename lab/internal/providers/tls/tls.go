// Package tls stands in for hashicorp/tls. The provider's proxy block is for
// data sources that no stage uses, so it has none.
package tls

import "github.com/ephemeral-castle/castle/lab/internal/providers/plugin"

// New returns the provider.
func New() plugin.Provider {
	return plugin.Provider{Resources: map[string]plugin.Resource{"tls_private_key": privateKey(),
		"tls_cert_request": certRequest(), "tls_locally_signed_cert": locallySignedCert()}}
}
