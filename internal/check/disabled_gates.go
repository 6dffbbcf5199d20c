package check

import (
	"strings"

	"github.com/ephemeral-castle/castle/internal/config"
)

// checkDisabledGates looks at disabled stages: `needs = [layer]` makes no edge to them,
// so stages that need the layer start early, except the stage that checks their gates.
func checkDisabledGates(c *cluster, report reporter) {
	for _, s := range c.config.Disabled {
		if !s.HasGates() {
			continue
		}
		var early []string
		for _, w := range c.config.Waiters(s.Layer) {
			if w.Stage != s.Delegate {
				early = append(early, waiter(w))
			}
		}
		if len(early) == 0 {
			continue
		}
		waiting, need := strings.Join(early, " and "), " needs "
		if len(early) > 1 {
			need = " need "
		}
		if by := s.Delegate; by != nil {
			report("gates-unasked", s.At(), "stage "+s.Name+": disabled, and some stages that need its layer do not wait",
				"%s, but a disabled stage makes no edge, and its gates are checked by stage %s, of layer %s. "+
					"Wire an input to an output of %s where that matters.", waiting+need+s.Layer, by.Name, by.Layer, by.Name)
			continue
		}
		report("gates-unasked", s.At(), "stage "+s.Name+": disabled, and no stage checks its gates",
			"%s, but a disabled stage makes no edge: nothing waits until the objects of this stage are ready. "+
				"%s; if nobody installs it, remove the block.", waiting+need+s.Layer, delegate(c.config.Waiters(s.Layer)))
	}
}

// delegate says how another stage can check a disabled stage's gates.
func delegate(waiters []config.Waiter) string {
	for _, w := range waiters {
		if w.Stage.Layer == "gitops" {
			return `If Flux installs it, write asked_by = "` + w.Stage.Name + `" here, and stage ` + w.Stage.Name +
				" checks its gates"
		}
	}
	return "If something else installs it, name the stage that triggers that in asked_by, which then checks its gates"
}

func waiter(w config.Waiter) string {
	if w.Gate != nil {
		return "gate " + w.Gate.Name() + " of stage " + w.Stage.Name
	}
	return "stage " + w.Stage.Name
}
