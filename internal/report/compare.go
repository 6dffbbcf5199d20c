package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ephemeral-castle/castle/internal/history"
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

// changedStages names the stages that a run changed: only runs with the same ones are comparable.
func changedStages(t *history.Timeline) string {
	var names []string
	for _, s := range t.Whole.Stages {
		if s.Changed() {
			names = append(names, s.Stage)
		}
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

// compare adds the medians of earlier runs, and lists what took longer.
func (r *Report) compare(t *history.Timeline, before []*history.Timeline) {
	var wholes []time.Duration
	for _, b := range before {
		if len(b.Durations()) > 0 {
			r.Earlier++
		}
		if b.Succeeded() && t.Succeeded() && changedStages(b) == changedStages(t) {
			wholes = append(wholes, b.Took())
		}
	}
	r.UsualSeconds = seconds(history.Median(wholes))
	usually := history.Learn(before...)
	check := func(of history.Subject, took float64) *float64 {
		usual := seconds(usually.Of(of))
		if usual != nil && took >= slowerRatio**usual && took-*usual >= slowerSeconds {
			r.Slower = append(r.Slower, Slower{
				Stage: of.Stage, Gate: of.Gate, Address: of.Address, Seconds: took, UsualSeconds: *usual,
				Ratio: took / *usual, Runs: len(usually[of]),
			})
		}
		return usual
	}
	for i, s := range r.Stages {
		r.Stages[i].UsualSeconds = check(history.Subject{Stage: s.Name}, s.Seconds)
		for j, g := range s.Gates {
			gate := history.Subject{Stage: s.Name, Gate: g.Name}
			r.Stages[i].Gates[j].UsualSeconds = check(gate, g.Seconds)
		}
	}
	for _, x := range r.Slowest {
		check(history.Subject{Stage: x.Stage, Address: x.Address, Action: x.Action}, x.Seconds)
	}
	more := func(s Slower) float64 { return s.Seconds - s.UsualSeconds }
	slices.SortStableFunc(r.Slower, func(a, b Slower) int { return cmp.Compare(more(b), more(a)) })
	r.Slower = r.Slower[:min(len(r.Slower), mostSlower)]
}

// seconds is a duration in JSON; nil stays nil.
func seconds(d *time.Duration) *float64 {
	if d == nil {
		return nil
	}
	return new(d.Seconds())
}
