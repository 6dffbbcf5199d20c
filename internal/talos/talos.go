// Package talos asks Talos machines what a stage must wait for. It speaks their
// API with the cluster's talosconfig, each machine on its own: never through a
// virtual address, which moves, and never through another machine, which could
// be the one that is down.
//
// A machine that boots, installs itself or still waits for its configuration is
// not ready, whatever it answers meanwhile: refused connections and a
// certificate that nobody signed are ordinary reasons to wait. Only what no
// waiting heals is permanent: a worker among the control planes, or a
// talosconfig whose role may not ask.
package talos

import "github.com/ephemeral-castle/castle/internal/gate"

// GateTypes returns the gates that Talos machines can answer.
func GateTypes() []gate.Type { return []gate.Type{etcdType(), virtualIPType()} }
