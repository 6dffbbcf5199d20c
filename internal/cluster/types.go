package cluster

import (
	"slices"

	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/infisical"
	"github.com/ephemeral-castle/castle/internal/kube"
	"github.com/ephemeral-castle/castle/internal/probe"
	"github.com/ephemeral-castle/castle/internal/proxmox"
	"github.com/ephemeral-castle/castle/internal/talos"
	"github.com/ephemeral-castle/castle/internal/vault"
)

// GateTypes returns every type of gate that a stage may use.
func GateTypes() []gate.Type {
	return slices.Concat(kube.GateTypes(), talos.GateTypes(), probe.GateTypes())
}

// PreflightTypes returns every type of preflight that a stage may use.
func PreflightTypes() []gate.PreflightType {
	return slices.Concat(proxmox.PreflightTypes(), talos.PreflightTypes(), vault.PreflightTypes())
}

// PreflightMaintenance is the preflight of platforms on machines that exist already.
const PreflightMaintenance = talos.PreflightMaintenance

// ExistsTypes returns every type of lookup that an adoption may use.
func ExistsTypes() []gate.ExistsType {
	return slices.Concat(infisical.ExistsTypes(), kube.ExistsTypes(), talos.ExistsTypes())
}

// The layers that exist before the cluster, and the platform's outputs that give access to it.
const (
	SecretsLayer      = "secrets"
	PlatformLayer     = "platform"
	KubeconfigOutput  = "kubeconfig"
	TalosconfigOutput = "talosconfig"
)
