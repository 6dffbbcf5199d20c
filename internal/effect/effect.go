// Package effect names what a change does to a machine of a cluster that runs. Terraform calls a change an
// update, whether it renames a machine or takes its disk. Platforms and Talos say what really happens.
package effect

import (
	"slices"
	"strings"

	"github.com/siderolabs/gen/xslices"
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
	Text string // what changes: "network_device.vlan_id 0 → 20"
	// Remedy is what to do instead, where a rollout cannot make the change.
	Remedy string
}

// Harms reports whether the change must not reach a machine that runs.
func (e Effect) Harms() bool { return e.Kind > Pending }

// Harmful returns the effects that harm, the worst first.
func Harmful(all []Effect) []Effect {
	harmful := xslices.Filter(all, Effect.Harms)
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

// Fate completes a sentence whose subject is a machine.
func (k Kind) Fate() string {
	switch k {
	case Pending:
		return "needs a restart"
	case Restarts:
		return "would restart"
	case Interrupts:
		return "would be interrupted"
	case Replaces:
		return "would be replaced"
	case LosesData:
		return "would lose data"
	case Impossible:
		return "cannot follow"
	}
	return "goes on"
}

// Texts joins what changes.
func Texts(all []Effect) string {
	return strings.Join(xslices.Map(all, func(e Effect) string { return e.Text }), ", ")
}

// Table returns the kind of each name in lists of names.
func Table(names map[Kind]string) map[string]Kind {
	all := map[string]Kind{}
	for kind, list := range names {
		for name := range strings.FieldsSeq(list) {
			all[name] = kind
		}
	}
	return all
}

// Lookup returns the kind of the longest row that fits a path: "cpu.cores", else "cpu", else otherwise.
func Lookup(table map[string]Kind, path string, otherwise Kind) Kind {
	for {
		if kind, known := table[path]; known {
			return kind
		}
		cut := strings.LastIndexByte(path, '.')
		if cut < 0 {
			return otherwise
		}
		path = path[:cut]
	}
}
