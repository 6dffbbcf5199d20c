//go:build integration

package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/ephemeral-castle/castle/internal/event"
)

// soakHits counts the kills by topic and name, to say which seams a soak has missed.
type soakHits map[string]map[string]int

const (
	aimed    = "aimed at" // the seam for which the test waited
	lastLine = "last line"
	phases   = "Terraform"
	deaths   = "death"
)

// terraformPhases are the commands of Terraform that each command gives.
var terraformPhases = map[string][]string{
	"create":  {"init", "plan", "show", "apply", "import"},
	"destroy": {"init", "plan", "apply", "import"},
	"rollout": {"init", "plan", "show", "apply"},
}

func (h soakHits) count(topic, name string) {
	if h[topic] == nil {
		h[topic] = map[string]int{}
	}
	h[topic][name]++
}

// kill counts one kill, and returns the last line that castle had written.
func (h soakHits) kill(a *attempt, m moment, journal []event.Event, alive []carrier, death string) string {
	last := "before the journal"
	if n := len(journal); n > 0 && !journal[n-1].Time.Before(a.began) {
		last = string(journal[n-1].Kind)
		if step := last + " " + journal[n-1].Step; slices.Contains(seams[a.command], step) ||
			!slices.Contains(seams[a.command], last) {
			last = strings.TrimSpace(step)
		}
	}
	last = a.command + " " + last
	h.count(lastLine, last)
	if m.seam != "" {
		h.count(aimed, a.command+" "+m.seam)
	}
	for _, c := range alive {
		if phase := c.phase(); phase != "" {
			h.count(phases, a.command+" "+phase)
		}
	}
	kind, _, _ := strings.Cut(death, " of ")
	h.count(deaths, kind)
	return last
}

// report lists every seam with its hits, then what was never hit.
func (h soakHits) report() string {
	var b strings.Builder
	var never []string
	for _, command := range slices.Sorted(maps.Keys(seams)) {
		of := func(name string) bool { return strings.HasPrefix(name, command+" ") }
		if !slices.ContainsFunc(slices.Collect(maps.Keys(h[lastLine])), of) {
			continue // another test kills it
		}
		for _, seam := range seams[command] {
			name := command + " " + seam
			waited, last := h[aimed][name], h[lastLine][name]
			fmt.Fprintf(&b, "seam: %4d aimed at, %4d last line: %s\n", waited, last, name)
			if waited+last == 0 {
				never = append(never, name)
			}
		}
		for _, phase := range terraformPhases[command] {
			if name := command + " " + phase; h[phases][name] == 0 {
				never = append(never, "terraform "+phase+" of "+command)
			}
		}
	}
	for _, topic := range []string{lastLine, phases, deaths} {
		for _, name := range slices.Sorted(maps.Keys(h[topic])) {
			if command, seam, _ := strings.Cut(name, " "); slices.Contains(seams[command], seam) {
				continue
			}
			fmt.Fprintf(&b, "%s: %4d %s\n", topic, h[topic][name], name)
		}
	}
	if len(never) == 0 {
		never = []string{"nothing"}
	}
	return b.String() + "never hit: " + strings.Join(never, ", ")
}
