// Package talos checks Talos machines through their own API. It connects directly to each machine with the
// cluster's talosconfig. It never uses the virtual address, which moves, or another machine, which may be
// down.
//
// A machine that boots, installs itself or waits for its configuration is not ready: refused connections and
// unknown certificates are reasons to wait. An error is permanent only if waiting cannot help: a worker
// among the control planes, or a talosconfig without the role for a gate's reads.
package talos

import "github.com/ephemeral-castle/castle/internal/gate"

// GateTypes returns the gates that read the state of Talos machines.
func GateTypes() []gate.Type { return []gate.Type{etcdType(), virtualIPType()} }
