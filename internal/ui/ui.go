// Package ui shows runs to people and to programs.
//
// What a command was asked for goes to stdout: a table, a value, JSON. How a run
// goes on is told on stderr, one line for each change of state, so that stdout
// can be piped. On a terminal the lines have colours and a last line says what is
// in progress; elsewhere they are plain and complete by themselves. With -o json
// each event of a run is one JSON object a line on stdout instead.
//
// Every text that arrives here has been masked already.
package ui

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/ephemeral-castle/castle/internal/event"
)

// JSON reports each event as one line of JSON.
type JSON struct {
	mu  sync.Mutex
	out *json.Encoder
}

// NewJSON returns a reporter that writes to w.
func NewJSON(w io.Writer) *JSON { return &JSON{out: json.NewEncoder(w)} }

// Report writes one event.
func (j *JSON) Report(e event.Event) {
	j.mu.Lock()
	defer j.mu.Unlock()
	//nolint:errcheck // a closed pipe must not end a run that is changing a cluster
	j.out.Encode(e)
}

// Lines reports events as lines of text.
type Lines struct {
	mu      sync.Mutex
	w       io.Writer
	paint   painter
	began   time.Time
	events  []event.Event
	verbose bool
	live    *live // nil unless w is a terminal
	gates   map[string]*closedGate
	working map[string]*work // by stage

	answered bool // an interrupt; the run says itself what it waits for
}

// NewLines returns a reporter for w. A terminal gets colours and a line that
// says what is in progress.
func NewLines(w io.Writer, terminal, verbose bool) *Lines {
	l := &Lines{w: w, paint: painter(terminal), verbose: verbose, gates: map[string]*closedGate{}, working: map[string]*work{}}
	if terminal {
		l.live = &live{w: w, running: map[string]string{}}
	}
	return l
}

// Report writes the line of one event, if it has one.
func (l *Lines) Report(e event.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.began.IsZero() {
		l.began = e.Time
	}
	l.events = append(l.events, e)
	if l.live != nil {
		l.live.see(e)
	}
	l.follow(e)
	switch e.Kind {
	case event.Interrupted, event.Waiting:
		l.answered = true
		l.say("castle: " + e.Text)
		return
	case event.GateClosed, event.GateOpen:
		if !l.gate(e) {
			return
		}
	case event.StageReady, event.StageCurrent, event.StageFailed, event.StageStopped, event.StageSkipped:
		l.forget(e.Stage)
	case event.StepEnded:
		if e.Step == "gates" {
			l.forget(e.Stage)
		}
	}
	l.line(e)
}

// Say writes a line that is no event's, such as the answer to an interrupt.
func (l *Lines) Say(text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.say(text)
}

func (l *Lines) say(text string) {
	if l.live != nil {
		l.live.clear()
		defer l.live.draw()
	}
	fmt.Fprintln(l.w, text)
}

// Answers is a reporter that tells nothing but what answers an interrupt, for
// commands whose output is somebody else's.
type Answers struct{ w io.Writer }

// NewAnswers returns a reporter for w.
func NewAnswers(w io.Writer) Answers { return Answers{w} }

// Report writes the line of one event, if it answers an interrupt.
func (a Answers) Report(e event.Event) {
	if e.Kind == event.Interrupted || e.Kind == event.Waiting {
		fmt.Fprintln(a.w, "castle: "+e.Text)
	}
}

// line writes the line of one event, if it has one, and draws the live line anew.
func (l *Lines) line(e event.Event) {
	text := l.text(e)
	l.write(e.Time, e, text)
	if w := l.working[e.Stage]; w != nil && text != "" {
		w.quiet(silence)
	}
}

// write writes a line about the stage of an event, and draws the live line anew.
func (l *Lines) write(at time.Time, of event.Event, text string) {
	if l.live != nil {
		l.live.clear()
		defer l.live.draw()
	}
	if text == "" {
		return
	}
	where := ""
	if of.Stage != "" {
		where = fmt.Sprintf("%-26s ", of.Layer+"/"+of.Stage)
	}
	moment := fmt.Sprintf("%7.1fs", at.Sub(l.began).Seconds())
	indent := "\n" + strings.Repeat(" ", 10)
	fmt.Fprintf(l.w, "%s  %s%s\n", l.paint.dim(moment), where, strings.ReplaceAll(text, "\n", indent))
}

func (l *Lines) text(e event.Event) string {
	switch e.Kind {
	case event.RunStarted:
		return e.Text + l.paint.dim(" (run "+e.Run+")")
	case event.Reviewed:
		return e.Text
	case event.StageStarted:
		if e.Text != "" {
			return "started: " + e.Text
		}
		return "started"
	case event.StepEnded:
		if e.Text == "" && (l.verbose || e.Seconds >= 1) {
			return fmt.Sprintf("%s %s", e.Step, l.paint.dim(seconds(e.Seconds)))
		}
	case event.Resource:
		if l.verbose || e.Action == "import" {
			return fmt.Sprintf("%s %s %s", e.Action, e.Address, e.Text)
		}
	case event.Retry:
		return l.paint.yellow("retry ") + e.Text
	case event.GateClosed:
		return l.paint.yellow("gate "+e.Gate+" closed: ") + e.Text
	case event.ReconcileTriggered:
		return "gate " + e.Gate + ": " + e.Text
	case event.GateOpen:
		return "gate " + e.Gate + " open"
	case event.StageReady:
		return l.paint.green("ready") + l.paint.dim(" after "+seconds(e.Seconds))
	case event.StageCurrent:
		return l.paint.green("current") + l.paint.dim(": nothing to do")
	case event.StageGone:
		if e.Text != "" {
			return l.paint.green("gone") + ": " + e.Text
		}
		return l.paint.green("gone")
	case event.StageFailed:
		return l.paint.red("failed: ") + e.Text
	case event.Diagnosed:
		return l.diagnosis(e)
	case event.StageStopped:
		return l.paint.yellow("interrupted")
	case event.StageSkipped:
		return l.paint.yellow("skipped: ") + e.Text
	case event.Notice:
		return l.paint.yellow("note: ") + e.Text
	}
	return ""
}

func seconds(s float64) string { return fmt.Sprintf("%.1fs", s) }

// Timeline writes the table of what the reported run did with each stage and
// how long it took.
func (l *Lines) Timeline(w io.Writer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	WriteTimeline(w, l.events)
}
