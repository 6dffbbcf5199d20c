package ui

import (
	"fmt"
	"slices"
	"time"

	"github.com/ephemeral-castle/castle/internal/event"
)

// A step of Terraform that has had no line for firstHeartbeat gets one that names the
// resource in progress. The pause doubles after each, up to lastHeartbeat.
const (
	firstHeartbeat = 15 * time.Second
	lastHeartbeat  = time.Minute
)

// progressive is the verb of a step in which Terraform changes or reads something.
func progressive(step string) string {
	return map[string]string{
		"plan": "planning", "apply": "applying", "destroy": "destroying", "import": "importing",
		"adopt": "importing",
	}[step]
}

// step is a step of Terraform in progress.
type step struct {
	started   event.Event
	resources []event.Event // in progress, the oldest first
	pause     time.Duration
	due       time.Time // of the next heartbeat
	timer     *time.Timer
}

// track keeps the steps in progress, and their resources.
func (l *Lines) track(e event.Event) {
	s := l.steps[e.Stage]
	switch e.Kind {
	case event.StepStarted:
		if progressive(e.Step) != "" && s == nil {
			s = &step{started: e}
			s.timer = time.AfterFunc(firstHeartbeat, func() { l.heartbeat(s) })
			l.steps[e.Stage] = s
			s.schedule(firstHeartbeat)
		}
	case event.ResourceStarted:
		if s != nil {
			s.resources = append(s.resources, e)
		}
	case event.Resource:
		if s != nil {
			s.resources = slices.DeleteFunc(s.resources, func(r event.Event) bool {
				return r.Address == e.Address
			})
		}
	case event.StepEnded, event.StageFailed, event.StageStopped:
		if s != nil && (e.Step == s.started.Step || e.Step == "") {
			s.timer.Stop()
			delete(l.steps, e.Stage)
		}
	}
}

// schedule sets the next heartbeat.
func (s *step) schedule(pause time.Duration) {
	s.pause, s.due = pause, time.Now().Add(pause)
	s.timer.Reset(pause)
}

// heartbeat prints the progress of a step, unless it ended, or had a line, while the timer fired.
func (l *Lines) heartbeat(s *step) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.interrupted || l.steps[s.started.Stage] != s || time.Now().Before(s.due) {
		return
	}
	l.write(time.Now(), s.started, l.paint.dim(s.String()))
	s.schedule(min(2*s.pause, lastHeartbeat))
}

// String names the resource that has been in progress longest.
func (s *step) String() string {
	text := "still " + progressive(s.started.Step) + ": "
	if len(s.resources) == 0 {
		return text + since(s.started.Time)
	}
	text += s.resources[0].Address + " " + since(s.resources[0].Time)
	if more := len(s.resources) - 1; more > 0 {
		text += fmt.Sprintf(", and %d more", more)
	}
	return text
}

func since(t time.Time) string { return time.Since(t).Round(time.Second).String() }
