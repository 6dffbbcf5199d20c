package ui

import (
	"slices"
	"time"

	"github.com/ephemeral-castle/castle/internal/event"
	"github.com/ephemeral-castle/castle/internal/graph"
)

// part is what takes time of its own in a run: a stage until it is applied and its immediate gates are open,
// or its deferred gates, which may begin long after.
type part struct {
	command, stage string
	gates          bool
}

// measure records the durations of a stage that a run has changed. One that was up to date tells nothing.
func (b *board) measure(s *stage, end event.Event) {
	if s.began.IsZero() || end.Kind != event.StageReady && end.Kind != event.StageGone {
		return
	}
	if len(s.gatesNeed) == 0 {
		b.took[part{b.command, s.name, false}] = end.Time.Sub(s.began)
		return
	}
	b.took[part{b.command, s.name, false}] = s.partEnd.Sub(s.began)
	b.took[part{b.command, s.name, true}] = end.Time.Sub(s.gatesBegan)
}

// usual holds the median duration of each part in earlier runs.
type usual map[part]time.Duration

// learn returns the usual durations of runs, each given by its events.
func learn(runs [][]event.Event) usual {
	all := map[part][]time.Duration{}
	for _, events := range runs {
		b := newBoard()
		for _, e := range events {
			b.add(e)
		}
		for p, took := range b.took {
			all[p] = append(all[p], took)
		}
	}
	u := usual{}
	for p, durations := range all {
		slices.Sort(durations)
		u[p] = durations[len(durations)/2]
	}
	return u
}

// parts returns the parts of the selected stages.
func (b *board) parts() (all []part) {
	for _, s := range b.stages {
		if !s.selected {
			continue
		}
		all = append(all, part{b.command, s.name, false})
		if len(s.gatesNeed) > 0 {
			all = append(all, part{b.command, s.name, true})
		}
	}
	return all
}

func (b *board) needs(p part) []part {
	s := b.byName[p.stage]
	names := s.needs
	var needs []part
	if p.gates {
		names, needs = s.gatesNeed, []part{{p.command, p.stage, false}}
	}
	for _, name := range names {
		need := b.byName[name]
		needs = append(needs, part{p.command, name, need != nil && len(need.gatesNeed) > 0})
	}
	return needs
}

// left estimates how long the run still takes: the longest path through the parts that are left, each with
// its usual duration. There is no estimate before a stage has begun, because it may be up to date, nor if a
// part that is left has no usual duration.
func (b *board) left(now time.Time, u usual) (time.Duration, bool) {
	begun, known := false, true
	weight := func(p part) time.Duration {
		s := b.byName[p.stage]
		began, done := s.began, s.result != "" || s.apart
		if p.gates {
			began, done = time.Time{}, s.result != ""
			if s.apart && len(s.steps) > 0 {
				began = s.steps[0].started.Time
			}
		}
		if done {
			return 0
		}
		took, measured := u[p]
		known = known && measured
		if began.IsZero() {
			return took
		}
		begun = true
		return max(0, took-now.Sub(began))
	}
	_, longest, err := graph.CriticalPath(b.parts(), b.needs, weight)
	for _, s := range b.stages {
		begun = begun || s.selected && s.result != "" && s.result != event.StageUpToDate
	}
	return longest, err == nil && begun && known && longest > 0
}

// roughly rounds an estimate up, to as many digits as it is worth.
func roughly(d time.Duration) time.Duration {
	unit := 5 * time.Second
	switch {
	case d > 10*time.Minute:
		unit = time.Minute
	case d > time.Minute:
		unit = 10 * time.Second
	}
	return (d + unit - 1).Truncate(unit)
}
