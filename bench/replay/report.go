package main

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// part is a part of a create.sh whose time TazLab published (see docs/performance.md).
type part struct {
	name    string
	seconds float64
	has     func(stage, layer string, late bool) bool
}

// publishedParts are those of a create.sh in June 2026, in its order. Of its eight minutes for Terraform and
// Flux, Flux has what the stages leave.
func publishedParts() []part {
	layer := func(name string) func(stage, layer string, late bool) bool {
		return func(stage, layer string, late bool) bool {
			return layer == name && !late && !strings.HasPrefix(stage, "vault-")
		}
	}
	stage := func(name string) func(stage, layer string, late bool) bool {
		return func(stage, _ string, late bool) bool { return stage == name && !late }
	}
	return []part{
		{"secrets", 16, layer("secrets")},
		{"vault-jwt-config", 18, stage("vault-jwt")},
		{"vault-db-config", 18, stage("vault-database")},
		{"platform", 101, layer("platform")},
		{"engine", 21, layer("engine")},
		{"networking, gitops and storage side by side", 115, func(_, layer string, late bool) bool {
			return slices.Contains(sideBySide, layer) && !late
		}},
		{"Flux converges, 83 Pods", 8*60 - (16 + 18 + 18 + 101 + 21 + 115),
			func(_, _ string, late bool) bool { return late }},
	}
}

// publishedRecord is that of February 2026, with five nodes.
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
		CriticalSeconds float64 `json:"critical_seconds"`
		CriticalPath    []struct {
			Stage   string
			Late    bool `json:"late_gates"`
			Seconds float64
		} `json:"critical_path"`
	}
	layeredSeconds float64 // see layerByLayer
}

// page is the whole comparison.
type page struct {
	speed, load string // the load before the first command
	clusters    []measured
}

// measured is one cluster, by castle and by the script.
type measured struct {
	cluster string
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

// byScript returns the script's span of a part, or of all.
func (m measured) byScript(has func(stage, layer string, late bool) bool) float64 {
	var s span
	for _, one := range m.script {
		if has == nil || has(one.Stage, one.Layer, one.Late) {
			s.add(one.Began, one.Ended)
		}
	}
	return s.seconds()
}

// byCastle returns castle's span of a part. A stage has its late gates in it.
func (m measured) byCastle(has func(stage, layer string, late bool) bool) float64 {
	var s span
	for _, one := range m.castle.Stages {
		if has(one.Name, one.Layer, false) {
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
	s.order, s.between = m.castle.layeredSeconds-r.CriticalSeconds, r.Seconds-r.CriticalSeconds
	early, late := map[string]float64{}, map[string]float64{} // castle's waits for gates
	for _, one := range m.castle.Stages {
		early[one.Name] = one.GateSeconds
	}
	for _, one := range r.CriticalPath {
		if one.Late { // beside the critical path they cost nothing
			late[one.Stage] = one.Seconds
			early[one.Stage] -= one.Seconds
		}
	}
	last := m.slowestLayer()
	for _, one := range m.script {
		if !one.Late && slices.Contains(sideBySide, one.Layer) && one.Layer != last {
			continue
		}
		s.init += one.Init
		if s.loops += one.Wait; one.Late {
			s.loops -= late[one.Stage]
		} else {
			s.loops -= early[one.Stage]
		}
	}
	s.rest = m.byScript(nil) - m.castle.layeredSeconds - s.init - s.loops
	return s
}

// slowestLayer is the one of the layers side by side for which the script waits.
func (m measured) slowestLayer() string {
	stages := slices.DeleteFunc(slices.Clone(m.script), func(s step) bool { return s.Late })
	last := slices.MaxFunc(stages, func(a, b step) int { return a.Ended.Compare(b.Ended) })
	return last.Layer
}

func (p page) markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "# create.sh replayed\n\n`make bench-replay` wrote this page: each cluster at speed %s "+
		"in the lab, by the script and by castle at the same time.\nLoad before (1, 5 and 15 minutes): %s.\n"+
		"[docs/performance.md](../docs/performance.md) explains it.\n\n", p.speed, p.load)
	b.WriteString("| | TazLab, published |")
	for _, m := range p.clusters {
		fmt.Fprintf(&b, " %s, script | %s, castle |", m.cluster, m.cluster)
	}
	b.WriteString("\n| --- | ---: |" + strings.Repeat(" ---: | ---: |", len(p.clusters)) + "\n")
	total := 0.0
	for _, part := range publishedParts() {
		total += part.seconds
		fmt.Fprintf(&b, "| %s | %s |", part.name, took(part.seconds))
		for _, m := range p.clusters {
			fmt.Fprintf(&b, " %s | %s |", orDash(m.byScript(part.has)), orDash(m.byCastle(part.has)))
		}
		b.WriteString("\n")
	}
	fmt.Fprintf(&b, "| whole | about %s; record %s |", took(total), took(publishedRecord))
	for _, m := range p.clusters {
		fmt.Fprintf(&b, " %s | %s |", took(m.byScript(nil)), took(m.castle.Run.Seconds))
	}
	b.WriteString("\n\nFlux works while the stages beside it start. The lab's repositories hold few " +
		"objects, so it is ready before them.\n")
	for _, m := range p.clusters {
		m.describe(&b)
	}
	return b.String()
}

// describe writes where one cluster's difference comes from, and castle's critical path.
func (m measured) describe(b *strings.Builder) {
	r, s, whole := m.castle.Run, m.sources(), m.byScript(nil)
	fmt.Fprintf(b, "\n## %s\n\ncastle saves %s, %.0f %%:\n\n", m.cluster, took(whole-r.Seconds),
		100*(whole-r.Seconds)/whole)
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
		fmt.Fprintf(b, "- %s: %s\n", took(line.seconds), line.text)
	}
	verdict := "met"
	ratio := r.Seconds / r.CriticalSeconds
	if ratio > 1.02 {
		verdict = "**not met**"
	}
	fmt.Fprintf(b, "\ncastle's wall clock / its critical path: %.3f (target ≤ 1.02: %s). The critical "+
		"path, %s:\n\n", ratio, verdict, took(r.CriticalSeconds))
	for _, one := range r.CriticalPath {
		name := one.Stage
		if one.Late {
			name += ", late gates"
		}
		fmt.Fprintf(b, "- %s %s\n", name, took(one.Seconds))
	}
}

// orDash shows seconds, or a dash where a cluster has nothing of a part.
func orDash(seconds float64) string {
	if seconds == 0 {
		return "–"
	}
	return took(seconds)
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
