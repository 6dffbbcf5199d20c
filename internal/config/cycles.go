package config

import (
	"fmt"
	"slices"
	"strings"
)

// checkCycles reports stages that wait for each other. A gate's needs count:
// what needs a stage waits for the stage's gates.
func (l *loader) checkCycles() {
	done := make(map[*Stage]bool)
	for _, s := range l.cluster.Stages {
		l.visit(s, nil, done)
	}
}

// visit walks needs depth first. path is how it came to s.
func (l *loader) visit(s *Stage, path []step, done map[*Stage]bool) {
	if i := slices.IndexFunc(path, func(p step) bool { return p.from == s }); i >= 0 {
		l.reportCycle(path[i:])
		return
	}
	if done[s] {
		return
	}
	for _, n := range s.allNeeds() {
		l.visit(n.stage, append(slices.Clip(path), step{s, n}), done)
	}
	done[s] = true
}

// step is one edge on a path.
type step struct {
	from *Stage
	need need
}

// allNeeds returns one need for each stage that must be ready before s is.
func (s *Stage) allNeeds() []need {
	var all []need
	add := func(needs []need) {
		for _, n := range needs {
			if n.stage != s && !slices.ContainsFunc(all, func(o need) bool { return o.stage == n.stage }) {
				all = append(all, n)
			}
		}
	}
	add(s.needs)
	for _, g := range s.Gates {
		add(g.needs)
	}
	return all
}

func (l *loader) reportCycle(cycle []step) {
	names := []string{cycle[0].from.Name}
	var hops []string
	for _, p := range cycle {
		names = append(names, p.need.stage.Name)
		hops = append(hops, fmt.Sprintf("%s needs %s (%s)", p.from.Name, p.need.stage.Name, place(p.need.at)))
	}
	l.report(problem(cycle[0].need.at, "cycle: "+strings.Join(names, " → "), "%s.", strings.Join(hops, ", ")))
}
