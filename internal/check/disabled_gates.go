package check

import (
	"fmt"
	"strings"

	"github.com/ephemeral-castle/castle/internal/config"
)

// checkDisabledGates checks disabled stages: `needs = [layer]` makes no edge to them,
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
		waiting += need + s.Layer
		if by := s.Delegate; by != nil {
			report("gates-unasked", s.At(), "stage "+s.Name+": disabled, and some stages do not wait for it",
				"%s, but a disabled stage makes no edge, and stage %s of layer %s checks its gates. "+
					"Wire an input to an output of %[2]s where that matters.", waiting, by.Name, by.Layer)
			continue
		}
		fix := delegate(c.config.Waiters(s.Layer))
		report("gates-unasked", s.At(), "stage "+s.Name+": disabled, and no stage checks its gates",
			"%s, but a disabled stage makes no edge: nothing waits until its objects are ready. "+
				"%s; if nobody installs them, remove the block.", waiting, fix)
	}
}

// delegate explains how another stage can check a disabled stage's gates.
func delegate(waiters []config.Waiter) string {
	for _, w := range waiters {
		if w.Stage.Layer == "gitops" {
			const fix = "If Flux installs them, write asked_by = %q here, and stage %[1]s checks its gates"
			return fmt.Sprintf(fix, w.Stage.Name)
		}
	}
	return "If something else installs them, write asked_by with the stage that triggers it, which then " +
		"checks its gates"
}

func waiter(w config.Waiter) string {
	if w.Gate != nil {
		return "gate " + w.Gate.Name() + " of stage " + w.Stage.Name
	}
	return "stage " + w.Stage.Name
}
