package topology

import (
	"fmt"
)

// Lines describe the run, its critical path, and how much longer a layer-by-layer script takes. `castle
// graph` and a rehearsal print them.
func (r *Run) Lines() []string {
	path := ""
	for i, s := range r.CriticalPath {
		if i > 0 {
			path += " → "
		}
		path += s.Stage
		if s.Late {
			path += " (late gates)"
		}
		path += " " + Took(s.Seconds)
	}
	lines := []string{
		fmt.Sprintf("Durations of run %s, which took %s.", r.ID, Took(r.Seconds)),
		fmt.Sprintf("Critical path, %s: %s", Took(r.CriticalSeconds), path),
	}
	if r.LayeredSeconds != nil {
		lines = append(
			lines,
			"Layer by layer, as a script runs them, the same durations add up to "+r.compared(
				*r.LayeredSeconds,
			)+".",
		)
	}
	return lines
}

func (r *Run) compared(layered float64) string {
	more := layered - r.CriticalSeconds
	if Took(more) == Took(0) {
		return "no more"
	}
	return fmt.Sprintf("%s: %s (%.0f%%) more than the critical path", Took(layered), Took(more),
		100*more/r.CriticalSeconds)
}

// Took formats a duration in seconds.
func Took(seconds float64) string {
	if seconds < 60 {
		return fmt.Sprintf("%.1fs", seconds)
	}
	whole := int(seconds + 0.5)
	return fmt.Sprintf("%dm%02ds", whole/60, whole%60)
}
