package ui

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/ephemeral-castle/castle/internal/event"
)

// Lines reports events as lines of text.
type Lines struct {
	mu      sync.Mutex
	w       io.Writer
	paint   painter
	started time.Time
	events  []event.Event
	verbose bool
	live    *live // nil unless w is a terminal
	gates   map[string]*closedGate
	steps   map[string]*step // by stage; those of Terraform

	interrupted bool // the run reports itself what it waits for
}

// NewLines returns a reporter for w. A terminal gets colours and a last line with
// the steps in progress.
func NewLines(w io.Writer, terminal, verbose bool) *Lines {
	l := &Lines{
		w: w, paint: painter(terminal), verbose: verbose, gates: map[string]*closedGate{},
		steps: map[string]*step{},
	}
	if terminal {
		l.live = &live{w: w, running: map[string]string{}}
	}
	return l
}

// Report prints the line of one event, if it has one.
func (l *Lines) Report(e event.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.started.IsZero() {
		l.started = e.Time
	}
	l.events = append(l.events, e)
	if l.live != nil {
		l.live.update(e)
	}
	l.track(e)
	switch e.Kind {
	case event.Interrupted, event.Waiting:
		l.interrupted = true
		l.print("castle: " + e.Text)
		return
	case event.GateClosed, event.GateOpen:
		if !l.reportsGate(e) {
			return
		}
	case event.GateFailed:
		l.dropGate(e.Stage + " " + e.Gate)
	case event.StageReady, event.StageUpToDate, event.StageFailed, event.StageStopped, event.StageSkipped:
		l.dropGates(e.Stage)
	case event.StepEnded:
		if e.Step == "gates" {
			l.dropGates(e.Stage)
		}
	}
	l.line(e)
}

// Say prints a line that belongs to no event.
func (l *Lines) Say(text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.print(text)
}

func (l *Lines) print(text string) {
	if l.live != nil {
		l.live.clear()
		defer l.live.draw()
	}
	if text != "" {
		fmt.Fprintln(l.w, text)
	}
}

// line prints the line of one event, if it has one.
func (l *Lines) line(e event.Event) {
	text := l.text(e)
	l.write(e.Time, e, text)
	if s := l.steps[e.Stage]; s != nil && text != "" {
		s.schedule(firstHeartbeat)
	}
}

// write prints a line about the stage of an event, and redraws the live line.
func (l *Lines) write(at time.Time, of event.Event, text string) {
	if text == "" {
		l.print("")
		return
	}
	where := ""
	if of.Stage != "" {
		where = fmt.Sprintf("%-26s ", of.Layer+"/"+of.Stage)
	}
	moment := fmt.Sprintf("%7.1fs", at.Sub(l.started).Seconds())
	indent := "\n" + strings.Repeat(" ", 10)
	l.print(fmt.Sprintf("%s  %s%s", l.paint.dim(moment), where, strings.ReplaceAll(text, "\n", indent)))
}

func (l *Lines) text(e event.Event) string {
	switch e.Kind {
	case event.RunStarted:
		return e.Text + l.paint.dim(" (run "+e.Run+")")
	case event.Reviewed:
		return e.Text
	case event.StageStarted:
		return strings.TrimSuffix("started: "+e.Text, ": ")
	case event.StageDrifted:
		return l.paint.yellow(e.Text)
	case event.StepEnded:
		if e.Text == "" && (l.verbose || e.Seconds >= 1) {
			return fmt.Sprintf("%s %s", e.Step, l.paint.dim(seconds(e.Seconds)))
		}
	case event.Resource:
		if l.verbose || e.Action == "import" || e.Action == "restore" {
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
	case event.GateFailed:
		return l.paint.red("gate "+e.Gate+" failed: ") + e.Text
	case event.StageReady:
		return l.paint.green("ready") + l.paint.dim(" after "+seconds(e.Seconds))
	case event.StageUpToDate:
		return l.paint.green("up to date")
	case event.StageGone:
		return strings.TrimSuffix(l.paint.green("gone")+": "+e.Text, ": ")
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

// LogText is the text of an event in a log, which also has Terraform's own lines. It is empty for an event
// that they tell, or another event does.
func LogText(e event.Event, terminal bool) string {
	l := &Lines{paint: painter(terminal)}
	switch e.Kind {
	case event.StepStarted:
		return e.Step + l.paint.dim(" …")
	case event.StepEnded:
		took := e.Step + l.paint.dim(" took "+seconds(e.Seconds))
		if e.Text != "" {
			took += ": " + e.Text
		}
		return took
	case event.Interrupted, event.Waiting, event.Receipted:
		return e.Text
	case event.RunEnded:
		return "the run ended" + l.paint.dim(" after "+seconds(e.Seconds)) + ": " + e.Text
	}
	return l.text(e)
}

func seconds(s float64) string { return fmt.Sprintf("%.1fs", s) }

// Timeline prints the table of the reported run.
func (l *Lines) Timeline(w io.Writer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	WriteTimeline(w, l.events)
}

// diagnosis renders a diagnosis in at most five lines, and the folder of the rest.
func (l *Lines) diagnosis(e event.Event) string {
	d := e.Diagnosis
	if d == nil {
		return ""
	}
	text := strings.TrimSuffix(l.paint.yellow("diagnosis")+" in "+d.Folder, " in ")
	for _, line := range [][2]string{
		{"waited for", d.Waited}, {"seen", d.Seen}, {"since", ago(d.Since, e.Time)},
		{"likely", cmp.Or(d.Cause, "no known cause")}, {"next", d.Next},
	} {
		if line[1] != "" {
			text += fmt.Sprintf("\n%-10s  %s", line[0], strings.ReplaceAll(line[1], "\n", " "))
		}
	}
	return text
}

// ago renders a moment and how long before now it was.
func ago(from, now time.Time) string {
	took := now.Sub(from).Round(time.Second)
	at := from.Local().Format(time.TimeOnly)
	if took < time.Second {
		return at
	}
	return fmt.Sprintf("%s, %s ago", at, took)
}
