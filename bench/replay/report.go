package main

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// published is a stage time that TazLab published (see docs/performance.md).
type published struct {
	name    string
	layers  []string // of castle
	seconds float64
}

// publishedTimes are those of a create.sh in June 2026; publishedRecord is that of February, with five nodes.
func publishedTimes() []published {
	return []published{
		{"secrets", []string{"secrets"}, 16},
		{"vault-jwt-config", nil, 18},
		{"vault-db-config", nil, 18},
		{"platform", []string{"platform"}, 101},
		{"engine", []string{"engine"}, 21},
		{"networking, gitops and storage side by side", sideBySide, 115},
	}
}

const publishedRecord = 8*60 + 20

// report is what castle reads of the rehearsal's report (docs/graph.md).
type report struct {
	Stages []struct {
		Name, Layer    string
		GateSeconds    float64 `json:"gate_seconds"`
		Started, Ended time.Time
	}
	Run *struct {
		Seconds         float64
		CriticalSeconds float64  `json:"critical_seconds"`
		LayeredSeconds  *float64 `json:"layered_seconds"`
		CriticalPath    []struct {
			Stage   string
			Late    bool `json:"late_gates"`
			Seconds float64
		} `json:"critical_path"`
	}
}

type measured struct {
	options options
	load    string // before the first command
	castle  report
	script  []step
}

// span is the time from the first of some stages to the end of the last; zero without any.
type span struct{ began, ended time.Time }

func (s *span) add(began, ended time.Time) {
	if s.began.IsZero() || began.Before(s.began) {
		s.began = began
	}
	if ended.After(s.ended) {
		s.ended = ended
	}
}

func (s *span) seconds() float64 { return s.ended.Sub(s.began).Seconds() }

// byScript returns the script's span of some layers, or of all.
func (m measured) byScript(layers []string) float64 {
	var s span
	for _, one := range m.script {
		if layers == nil || slices.Contains(layers, one.Layer) {
			s.add(one.Began, one.Ended)
		}
	}
	return s.seconds()
}

func (m measured) byCastle(layers []string) float64 {
	var s span
	for _, one := range m.castle.Stages {
		if slices.Contains(layers, one.Layer) {
			s.add(one.Started, one.Ended)
		}
	}
	return s.seconds()
}

// sources are the parts of what castle saves. The order is what castle's own durations would have cost in the
// order of the script. Of the rest the script spent a part on terraform init, and a part in its loops.
type sources struct{ order, init, loops, rest, between float64 }

func (m measured) sources() (s sources) {
	r := m.castle.Run
	s.order, s.between = *r.LayeredSeconds-r.CriticalSeconds, r.Seconds-r.CriticalSeconds
	gates := map[string]float64{}
	for _, one := range m.castle.Stages {
		gates[one.Name] = one.GateSeconds
	}
	last := m.slowestLayer()
	for _, one := range m.script {
		if slices.Contains(sideBySide, one.Layer) && one.Layer != last {
			continue
		}
		s.init += one.Init
		s.loops += one.Wait - gates[one.Stage]
	}
	s.rest = m.byScript(nil) - *r.LayeredSeconds - s.init - s.loops
	return s
}

// slowestLayer is the one of the layers side by side for which the script waits.
func (m measured) slowestLayer() string {
	last := slices.MaxFunc(m.script, func(a, b step) int { return a.Ended.Compare(b.Ended) })
	return last.Layer
}

func (m measured) markdown() string {
	r, s := m.castle.Run, m.sources()
	whole := m.byScript(nil)
	var b strings.Builder
	fmt.Fprintf(&b, "# create.sh replayed\n\n`make bench-replay` wrote this page: cluster %s at speed %s in "+
		"the lab, both at the same time.\nLoad before (1, 5 and 15 minutes): %s.\n"+
		"[docs/performance.md](../docs/performance.md) explains it.\n\n",
		m.options.cluster, m.options.speed, m.load)
	b.WriteString("| | TazLab, published | script in the lab | castle in the lab |\n" +
		"| --- | ---: | ---: | ---: |\n")
	total := 0.0
	for _, p := range publishedTimes() {
		total += p.seconds
		script, castle := "–", "–"
		if p.layers != nil {
			script, castle = took(m.byScript(p.layers)), took(m.byCastle(p.layers))
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", p.name, took(p.seconds), script, castle)
	}
	fmt.Fprintf(&b, "| whole | %s of stages; record %s | %s | %s |\n", took(total), took(publishedRecord),
		took(whole), took(r.Seconds))
	fmt.Fprintf(&b, "\ncastle saves %s, %.0f %%:\n\n", took(whole-r.Seconds), 100*(whole-r.Seconds)/whole)
	for _, line := range []struct {
		seconds float64
		text    string
	}{
		{s.order, "the order: stages start when what they need is ready, not when a layer is complete"},
		{s.loops, "the loops: what the script waits longer than castle's gates"},
		{s.init, "`terraform init` before each stage"},
		{s.rest, "the rest: providers that each command starts anew, less what stages side by side cost " +
			"each other"},
		{-s.between, "time between castle's stages, mostly preflights"},
	} {
		fmt.Fprintf(&b, "- %s: %s\n", took(line.seconds), line.text)
	}
	verdict := "met"
	ratio := r.Seconds / r.CriticalSeconds
	if ratio > 1.02 {
		verdict = "**not met**"
	}
	fmt.Fprintf(&b, "\ncastle's wall clock / its critical path: %.3f (target ≤ 1.02: %s). The critical "+
		"path, %s:\n", ratio, verdict, took(r.CriticalSeconds))
	for _, one := range r.CriticalPath {
		name := one.Stage
		if one.Late {
			name += ", late gates"
		}
		fmt.Fprintf(&b, "\n- %s %s", name, took(one.Seconds))
	}
	b.WriteString("\n")
	return b.String()
}

// took shows seconds as people write them.
func took(seconds float64) string {
	if seconds < 0 {
		return "−" + took(-seconds)
	}
	if seconds < 60 {
		return fmt.Sprintf("%.1f s", seconds)
	}
	whole := int(seconds + 0.5)
	return fmt.Sprintf("%d:%02d", whole/60, whole%60)
}
