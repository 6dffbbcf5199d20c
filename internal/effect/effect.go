// Package effect names what a change does to a machine of a cluster that runs. Terraform calls a change an
// update, whether it renames a machine or takes its disk. Platforms and Talos say what really happens.
package effect

import (
	"fmt"
	"slices"
)

// Kind is how much harm a change does.
type Kind int

// The kinds, from no harm to the most.
const (
	None       Kind = iota // nobody notices it
	Pending                // it takes effect when the machine restarts, and the change restarts none
	Restarts               // it restarts the machine
	Interrupts             // the machine's network or its part of Kubernetes is down for a moment
	Replaces               // another machine takes its place
	LosesData              // data of the machine is lost
	Impossible             // it fails halfway, or the machine never follows it
)

// Effect is one effect of a change.
type Effect struct {
	Kind Kind
	Text string // "network_device.vlan_id none → 20 interrupts its network"
	// Remedy is how to make the change by hand, or what to do instead; empty if nothing is known.
	Remedy string
}

// Harms reports whether the change must not reach a machine that runs.
func (e Effect) Harms() bool { return e.Kind > Pending }

// Harmful returns the effects that harm, the worst first.
func Harmful(all []Effect) []Effect {
	harmful := slices.DeleteFunc(slices.Clone(all), func(e Effect) bool { return !e.Harms() })
	slices.SortStableFunc(harmful, func(a, b Effect) int { return int(b.Kind - a.Kind) })
	return harmful
}

// Worst is the greatest harm of all effects.
func Worst(all []Effect) (worst Kind) {
	for _, e := range all {
		worst = max(worst, e.Kind)
	}
	return worst
}

// Verb completes a sentence whose subject is a change: "interrupts its network".
func (k Kind) Verb() string {
	switch k {
	case None:
		return "changes nothing that runs"
	case Pending:
		return "takes effect when the machine restarts"
	case Restarts:
		return "restarts it"
	case Interrupts:
		return "interrupts it"
	case Replaces:
		return "replaces it"
	case LosesData:
		return "loses data"
	case Impossible:
		return "is impossible"
	}
	return fmt.Sprint(int(k))
}
