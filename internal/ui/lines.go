package ui

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/ephemeral-castle/castle/internal/event"
	"github.com/ephemeral-castle/castle/internal/foreign"
	"github.com/ephemeral-castle/castle/internal/history"
	"github.com/ephemeral-castle/castle/internal/report"
)

// Options are how progress is shown.
type Options struct {
	Verbose    bool // every resource and step
	Timestamps bool // the wall clock, too
	Colour     bool
	View       bool // redraw a view below the lines; otherwise lines tell everything
	ASCII      bool // the terminal shows no other characters
}

// Lines reports events as lines of text.
type Lines struct {
	mu      sync.Mutex
	w       io.Writer
	o       Options
	paint   painter
	started time.Time
	run     *history.Timeline
	delayed delayedGates
	pauses  map[string]*pause // by stage

	screen  *screen // nil without a view
	usual   history.Usual
	hidden  bool
	ticking bool
	ended   bool

	interrupted bool // the run reports itself what it waits for
}

// NewLines returns a reporter for w.
func NewLines(w io.Writer, o Options) *Lines {
	l := &Lines{
		w: w, o: o, paint: painter(o.Colour), run: history.Fold(nil), delayed: delayedGates{},
		pauses: map[string]*pause{},
	}
	if o.View {
		l.screen = &screen{w: w, size: func() (int, int) { return size(w, 80, 24) }}
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
	e = e.Visible()
	l.run.Add(e)
	l.ended = e.Kind == event.RunEnded || l.ended && e.Kind != event.RunStarted
	if l.reports(e) {
		l.line(e)
	}
	if l.screen != nil {
		if l.ended || !l.ticking {
			l.refresh()
		}
		return
	}
	l.schedule(e.Stage)
}

// reports reports whether an event gets a line now. It prints interrupts itself.
func (l *Lines) reports(e event.Event) bool {
	switch e.Kind {
	case event.Interrupted, event.Waiting:
		l.interrupted = true
		l.print("castle: " + e.Text)
		return false
	case event.GateClosed, event.GateOpen:
		return l.o.Verbose || l.screen == nil && l.reportsGate(e)
	case event.MachineProgress:
		return l.o.Verbose || e.Step == "" // what a part prints itself
	case event.StageStarted, event.StepEnded, event.StageUpToDate: // the view and the timeline tell
		if e.Kind == event.StepEnded && e.Step == "gates" || e.Kind == event.StageUpToDate {
			l.delayed.dropAll(e.Stage)
		}
		return l.o.Verbose || l.screen == nil
	case event.GateFailed:
		l.delayed.drop(e.Stage + " " + e.Gate)
	case event.StageReady, event.StageFailed, event.StageStopped, event.StageSkipped:
		l.delayed.dropAll(e.Stage)
	}
	return true
}

// Say prints a line that belongs to no event.
func (l *Lines) Say(text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.print(foreign.Text(text))
}

func (l *Lines) print(text string) {
	if l.screen != nil {
		l.screen.print(text, l.view())
		return
	}
	fmt.Fprintln(l.w, text)
}

// line prints the line of one event, if it has one.
func (l *Lines) line(e event.Event) {
	if text := l.text(e); text != "" {
		l.write(e.Time, e, text)
	}
}

// narrow is the width below which lines have no columns.
const narrow = 60

// write prints a line about the stage of an event.
func (l *Lines) write(at time.Time, of event.Event, text string) {
	where, indent := "", "\n"+strings.Repeat(" ", 10)
	moment := fmt.Sprintf("%7.1fs", at.Sub(l.started).Seconds())
	if l.screen != nil && Columns(l.w, 80) < narrow {
		moment, indent = brief(at.Sub(l.started)), "\n  "
	}
	switch {
	case of.Stage == "":
	case indent == "\n  ":
		where = of.Layer + "/" + of.Stage + " "
	default:
		where = fmt.Sprintf("%-26s ", of.Layer+"/"+of.Stage)
	}
	if l.o.Timestamps {
		moment = at.Local().Format("15:04:05") + " " + moment
	}
	l.print(fmt.Sprintf("%s  %s%s", l.paint.dim(moment), where, strings.ReplaceAll(text, "\n", indent)))
	if p := l.pauses[of.Stage]; p != nil {
		p.restart()
	}
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
		// The timeline has the others. One that had reminders gets the line that ends them.
		if e.Text == "" && (l.o.Verbose || e.Seconds >= reminder.Seconds()) {
			return fmt.Sprintf("%s %s", e.Step, l.paint.dim(seconds(e.Seconds)))
		}
	case event.Resource:
		if l.o.Verbose || e.Action == "import" || e.Action == "restore" {
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
	case event.MachineStarted, event.MachineProgress:
		return e.Machine + " " + e.Text
	case event.MachineReady:
		return e.Machine + " " + l.paint.green("done") + l.paint.dim(" after "+seconds(e.Seconds))
	case event.MachineFailed:
		return e.Machine + " " + l.paint.red("failed: ") + e.Text
	case event.Notice:
		return l.paint.yellow("note: ") + e.Text
	}
	return ""
}

// LogText is the text of an event in a log, which also has Terraform's own lines. It is empty for an event
// that they tell, or another event does.
func LogText(e event.Event, terminal bool) string {
	l, e := &Lines{paint: painter(terminal)}, e.Visible()
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

// Timeline prints one row for each stage of the reported run, and the receipt, if there is one.
func (l *Lines) Timeline(w io.Writer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	report.WriteTimeline(w, l.run.Whole.Stages, Columns(w, 0))
	if l.run.Receipt != "" {
		fmt.Fprintln(w, l.run.Receipt)
	}
}

// diagnosis renders a diagnosis in at most five lines, and the folder of the rest.
func (l *Lines) diagnosis(e event.Event) string {
	d := e.Diagnosis
	if d == nil {
		return ""
	}
	text := strings.TrimSuffix(l.paint.yellow("diagnosis")+" in "+d.Folder, " in ")
	seen := d.Seen
	if strings.HasPrefix(d.Cause, seen) { // it is told once
		seen = ""
	}
	for _, line := range [][2]string{
		{"waited for", d.Waited}, {"seen", seen}, {"since", ago(d.Since, e.Time)},
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

// results are the results of stages, in the order in which a summary counts them.
var results = []event.Result{event.ResultReady, event.ResultUpToDate, event.ResultGone, event.ResultFailed,
	event.ResultInterrupted, event.ResultSkipped}

// counted returns "3 ready" for each result that stages have.
func counted(counts map[event.Result]int) (parts []string) {
	for _, r := range results {
		if n := counts[r]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, report.ResultText(string(r))))
		}
	}
	return parts
}

// Summary prints how the reported run ended, and reports whether it has ended.
func (l *Lines) Summary() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.run.End == nil || l.run.End.Ending == nil {
		return false
	}
	l.print(strings.TrimSuffix(summary(*l.run.End.Ending), "\n"))
	return true
}

// summary renders an ending: the stages by result, each root cause with the next step, and how to resume.
func summary(e event.Ending) string {
	var b strings.Builder
	counts, total := counted(e.Stages), 0
	for _, n := range e.Stages {
		total += n
	}
	if total > 0 {
		took := time.Duration(e.Seconds * float64(time.Second))
		whole := clock(took.Round(time.Second))
		if took < time.Second {
			whole = took.Round(time.Millisecond).String()
		}
		fmt.Fprintf(&b, "%d %s: %s in %s\n", total, plural(total, "stage"), strings.Join(counts, ", "), whole)
	}
	if e.Result == event.OutcomeInterrupted {
		b.WriteString("castle: interrupted\n")
	}
	for _, c := range e.Causes {
		writeCause(&b, c)
	}
	if e.Resume != "" {
		fmt.Fprintf(&b, "Resume: %s\n", e.Resume)
	}
	return b.String()
}

func writeCause(w io.Writer, c event.Cause) {
	where := ""
	if len(c.Stages) > 0 {
		where = plural(len(c.Stages), "stage") + " " + strings.Join(c.Stages, ", ") + ": "
	}
	fmt.Fprintf(w, "castle: %s%s\n", where, c.Text)
	var closes []string
	if len(c.Gates) > 0 {
		closes = append(closes, "closes "+firstNames(c.Gates))
	}
	if c.Follow > 0 {
		closes = append(closes, event.Following(c.Follow))
	}
	if len(closes) > 0 {
		fmt.Fprintf(w, "  %s\n", strings.Join(closes, "; "))
	}
	if c.Next != "" {
		fmt.Fprintf(w, "Next: %s\n", c.Next)
	}
}

// mostNamed is how many gates a summary names.
const mostNamed = 3

// firstNames lists names, and counts those beyond the first few.
func firstNames(names []string) string {
	if more := len(names) - mostNamed; more > 1 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:mostNamed], ", "), more)
	}
	return strings.Join(names, ", ")
}

func plural(n int, what string) string {
	if n == 1 {
		return what
	}
	return what + "s"
}
