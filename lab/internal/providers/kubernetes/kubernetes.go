// Package kubernetes stands in.
package kubernetes

import "github.com/ephemeral-castle/castle/lab/internal/providers/plugin"

// New returns the provider.
func New() plugin.Provider { return plugin.Provider{} }
