package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// A duration is slower than usual if it is so many times the median, and so many seconds more.
const (
	slowerRatio   = 1.5
	slowerSeconds = 2
	mostSlower    = 10
)

// Slower is a part of the run that took longer than usual.
type Slower struct {
	Stage        string  `json:"stage"`
	Gate         string  `json:"gate,omitempty"`    // of the stage
	Address      string  `json:"address,omitempty"` // of a resource of the stage
	Seconds      float64 `json:"seconds"`
	UsualSeconds float64 `json:"usual_seconds"` // the median
	Ratio        float64 `json:"ratio"`
	Runs         int     `json:"runs"` // that the median is from
}

// String names the part with its ratio: "gate metallb webhook.objects took 2.3 × its usual".
func (s Slower) String() string {
	name := "stage " + s.Stage
	switch {
	case s.Gate != "":
		name = "gate " + s.Stage + " " + s.Gate
	case s.Address != "":
		name = "resource " + s.Stage + " " + s.Address
	}
	return fmt.Sprintf("%s took %.1f × its usual: %s, not %s", name, s.Ratio, Took(s.Seconds),
		Took(s.UsualSeconds))
}

// part names something whose durations can be compared between runs.
type part struct{ stage, gate, address, action string }

// parts are the durations of a run that ended well: stages that applied, open gates, changed resources.
func (r *Report) parts() map[part]float64 {
	all := map[part]float64{}
	for _, s := range r.Stages {
		if s.Result == "ready" || s.Result == "gone" {
			all[part{stage: s.Name}] = s.Seconds
		}
		for _, g := range s.Gates {
			if g.Result == "open" {
				all[part{stage: s.Name, gate: g.Name}] = g.Seconds
			}
		}
	}
	for _, x := range r.Slowest {
		if !x.Failed {
			all[part{stage: x.Stage, address: x.Address, action: x.Action}] = x.Seconds
		}
	}
	return all
}

// changedStages names the stages that the run changed: only runs with the same ones are comparable.
func changedStages(r *Report) string {
	var names []string
	for _, s := range r.Stages {
		if s.Result == "ready" || s.Result == "gone" {
			names = append(names, s.Name)
		}
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

// compare adds the medians of earlier runs, and lists what took longer.
func (r *Report) compare(before []Report) {
	samples := map[part][]float64{}
	var wholes []float64
	for _, b := range before {
		parts := b.parts()
		if len(parts) > 0 {
			r.Earlier++
		}
		for p, seconds := range parts {
			samples[p] = append(samples[p], seconds)
		}
		if b.Result == succeeded && r.Result == succeeded && changedStages(&b) == changedStages(r) {
			wholes = append(wholes, b.Seconds)
		}
	}
	r.UsualSeconds = median(wholes)
	check := func(p part, seconds float64) *float64 {
		usual := median(samples[p])
		if usual != nil && seconds >= slowerRatio**usual && seconds-*usual >= slowerSeconds {
			r.Slower = append(r.Slower, Slower{
				Stage: p.stage, Gate: p.gate, Address: p.address, Seconds: seconds, UsualSeconds: *usual,
				Ratio: seconds / *usual, Runs: len(samples[p]),
			})
		}
		return usual
	}
	for i, s := range r.Stages {
		r.Stages[i].UsualSeconds = check(part{stage: s.Name}, s.Seconds)
		for j, g := range s.Gates {
			r.Stages[i].Gates[j].UsualSeconds = check(part{stage: s.Name, gate: g.Name}, g.Seconds)
		}
	}
	for _, x := range r.Slowest {
		check(part{stage: x.Stage, address: x.Address, action: x.Action}, x.Seconds)
	}
	more := func(s Slower) float64 { return s.Seconds - s.UsualSeconds }
	slices.SortStableFunc(r.Slower, func(a, b Slower) int { return cmp.Compare(more(b), more(a)) })
	r.Slower = r.Slower[:min(len(r.Slower), mostSlower)]
}

// median returns the middle of the samples, nil if there are none.
func median(samples []float64) *float64 {
	if len(samples) == 0 {
		return nil
	}
	sorted := slices.Sorted(slices.Values(samples))
	middle := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return &sorted[middle]
	}
	return new((sorted[middle-1] + sorted[middle]) / 2)
}
