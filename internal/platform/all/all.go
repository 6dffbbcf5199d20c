// Package all lists the platforms that castle knows. A new one is one line here.
package all

import (
	"github.com/ephemeral-castle/castle/internal/platform"
	"github.com/ephemeral-castle/castle/internal/platform/hcloud"
	"github.com/ephemeral-castle/castle/internal/platform/proxmox"
	"github.com/ephemeral-castle/castle/internal/platform/proxmox/doctor"
)

// Platforms returns every platform.
func Platforms() platform.Set {
	return platform.Set{proxmox.Platform{Doctor: doctor.Checks}, hcloud.Platform{}}
}
