// Package talos checks Talos machines through their own API. It connects to each
// machine directly with the cluster's talosconfig: never through the virtual
// address, which moves, and never through another machine, which may be down.
//
// A machine that boots, installs itself or waits for its configuration is not
// ready: refused connections and unknown certificates are reasons to wait. An
// error is permanent only if waiting cannot help: a worker among the control
// planes, or a talosconfig whose role may not read what a gate needs.
package talos

import "github.com/ephemeral-castle/castle/internal/gate"

// GateTypes returns the gates that read the state of Talos machines.
func GateTypes() []gate.Type { return []gate.Type{etcdType(), virtualIPType()} }
