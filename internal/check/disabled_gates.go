package check

import (
	"strings"

	"github.com/ephemeral-castle/castle/internal/config"
)

// gatesUnasked looks at disabled stages: a layer's name in `needs` makes no edge to
// them, so what was written to wait for them starts without, unless it is the stage
// that asks their gates itself.
func gatesUnasked(c *cluster, report reporter) {
	for _, s := range c.config.Disabled {
		if !s.HasGates() {
			continue
		}
		var early []string
		for _, w := range c.config.Waiters(s.Layer) {
			if w.Stage != s.AskedBy {
				early = append(early, waiter(w))
			}
		}
		if len(early) == 0 {
			continue
		}
		whom := "needs"
		if len(early) > 1 {
			whom = "need"
		}
		if s.AskedBy != nil {
			report(s.At(), "stage "+s.Name+": disabled, and not waited for by all who need its layer",
				"%s %s %s, but a disabled stage makes no edge, and its gates are asked by stage %s, of layer %s. Wire an input to an output of %s where that matters.",
				strings.Join(early, " and "), whom, s.Layer, s.AskedBy.Name, s.AskedBy.Layer, s.AskedBy.Name)
			continue
		}
		report(s.At(), "stage "+s.Name+": disabled, and nobody asks its gates",
			"%s %s %s, but a disabled stage makes no edge: nothing waits until what it would make is ready. %s; if nobody brings it, remove the block.",
			strings.Join(early, " and "), whom, s.Layer, askedBy(c.config.Waiters(s.Layer)))
	}
}

// askedBy says how a stage's gates are asked nevertheless.
func askedBy(waiters []config.Waiter) string {
	for _, w := range waiters {
		if w.Stage.Layer == "gitops" {
			return `If Flux brings it, write asked_by = "` + w.Stage.Name + `" here, and stage ` + w.Stage.Name + " asks its gates"
		}
	}
	return "If somebody else brings it, write here asked_by with the stage that makes them do so, which then asks its gates"
}

func waiter(w config.Waiter) string {
	if w.Gate != nil {
		return "gate " + w.Gate.Name() + " of stage " + w.Stage.Name
	}
	return "stage " + w.Stage.Name
}
