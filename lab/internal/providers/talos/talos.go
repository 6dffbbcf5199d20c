// Package talos stands in.
package talos

import "github.com/ephemeral-castle/castle/lab/internal/providers/plugin"

// New returns the provider.
func New() plugin.Provider { return plugin.Provider{} }
