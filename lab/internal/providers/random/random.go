// Package random stands in for hashicorp/random. It needs no configuration.
package random

import "github.com/ephemeral-castle/castle/lab/internal/providers/plugin"

// New returns the provider.
func New() plugin.Provider {
	return plugin.Provider{Resources: map[string]plugin.Resource{"random_password": password()}}
}
