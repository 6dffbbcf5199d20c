package ui

import (
	"fmt"
	"slices"
	"time"

	"github.com/ephemeral-castle/castle/internal/event"
)

// A stage that is in Terraform and has had no line for this long gets one that
// says what it is at; then, while nothing else happens, one after twice as long,
// up to one a minute.
const (
	silence = 15 * time.Second
	longest = time.Minute
)

// doing is what a person calls the steps in which Terraform changes or reads something.
func doing(step string) string {
	return map[string]string{
		"plan": "planning", "apply": "applying", "destroy": "destroying", "import": "importing", "adopt": "importing",
	}[step]
}

// work is a stage's step in Terraform that has not ended.
type work struct {
	step  event.Event
	begun []event.Event // resources that Terraform is at, the oldest first
	pause time.Duration
	due   time.Time // when the stage has been silent for pause
	timer *time.Timer
}

// follow keeps track of what Terraform is at.
func (l *Lines) follow(e event.Event) {
	w := l.working[e.Stage]
	switch e.Kind {
	case event.StepStarted:
		if doing(e.Step) != "" && w == nil {
			w = &work{step: e}
			w.timer = time.AfterFunc(silence, func() { l.still(w) })
			l.working[e.Stage] = w
			w.quiet(silence)
		}
	case event.ResourceStarted:
		if w != nil {
			w.begun = append(w.begun, e)
		}
	case event.Resource:
		if w != nil {
			w.begun = slices.DeleteFunc(w.begun, func(b event.Event) bool { return b.Address == e.Address })
		}
	case event.StepEnded, event.StageFailed, event.StageStopped:
		l.ended(e)
	}
}

func (l *Lines) ended(e event.Event) {
	if w := l.working[e.Stage]; w != nil && (e.Step == w.step.Step || e.Step == "") {
		w.timer.Stop()
		delete(l.working, e.Stage)
	}
}

// quiet begins a silence that ends with a line after pause.
func (w *work) quiet(pause time.Duration) {
	w.pause, w.due = pause, time.Now().Add(pause)
	w.timer.Reset(pause)
}

// still writes what a stage is at that has been silent for long.
func (l *Lines) still(w *work) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.answered || l.working[w.step.Stage] != w || time.Now().Before(w.due) {
		return // or it ended, or had a line, while the timer fired
	}
	l.write(time.Now(), w.step, l.paint.dim(w.String()))
	w.quiet(min(2*w.pause, longest))
}

// String is what Terraform has been at for the longest.
func (w *work) String() string {
	text := "still " + doing(w.step.Step)
	if len(w.begun) == 0 {
		return text + ": " + since(w.step.Time)
	}
	text += ": " + w.begun[0].Address + " " + since(w.begun[0].Time)
	if more := len(w.begun) - 1; more > 0 {
		text += fmt.Sprintf(", and %d more", more)
	}
	return text
}

func since(t time.Time) string { return time.Since(t).Round(time.Second).String() }
