// Package ui prints runs for people and for programs. Its contract:
//
//   - stdout carries the result of a command: a table, a value, JSON.
//   - stderr carries progress, one line for each change of state, so that stdout can be piped.
//   - On a terminal, lines have colours and a last line names the steps in progress;
//     elsewhere, lines are plain and each is complete by itself.
//   - With -o json, each event of a run is one JSON object, on a line of stdout.
//
// Every text that arrives here is masked already.
package ui

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/hashicorp/hcl/v2"

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

// Answers is a reporter that prints the answers to interrupts alone, for commands
// that pass on the output of another program.
type Answers struct{ W io.Writer }

// Report prints an event that answers an interrupt.
func (a Answers) Report(e event.Event) {
	if e.Kind == event.Interrupted || e.Kind == event.Waiting {
		fmt.Fprintln(a.W, "castle: "+e.Text)
	}
}

// diagnosticWidth is where the text of a diagnostic is wrapped on a terminal.
const diagnosticWidth = 100

// WriteDiagnostics prints the problems of a configuration, and returns how many have a place: each with that,
// the line there and a fix. It omits the line if the line may hold a secret or the place is no file, such as
// --var. A problem without a place concerns the command line and gets one line.
func WriteDiagnostics(w io.Writer, diags hcl.Diagnostics, files map[string]*hcl.File, terminal bool) (int,
	error) {
	width := uint(0)
	if terminal {
		width = diagnosticWidth
	}
	var located hcl.Diagnostics
	for _, d := range diags {
		if d.Subject == nil {
			fmt.Fprintln(w, "castle:", strings.TrimSuffix(d.Summary+". "+d.Detail, ". "))
			continue
		}
		private, ok := hcl.DiagnosticExtra[unquoted](d)
		if files[d.Subject.Filename] == nil || ok && private.Unquoted() {
			unplaced := *d
			unplaced.Subject, unplaced.Context = nil, nil
			unplaced.Summary = fmt.Sprintf("%s: %s", place(*d.Subject), d.Summary)
			d = &unplaced
		}
		located = append(located, d)
	}
	return len(located), hcl.NewDiagnosticTextWriter(w, files, width, terminal).WriteDiagnostics(located)
}

// unquoted is the extra of a diagnostic whose line may hold a secret, although the
// rest of its file may be printed.
type unquoted interface{ Unquoted() bool }

// place is a range's file and line; an empty range stands for the whole file.
func place(at hcl.Range) string {
	if at.Empty() {
		return at.Filename
	}
	return fmt.Sprintf("%s:%d", at.Filename, at.Start.Line)
}

// NewTable returns a writer that aligns columns, separated by tabs, until it is flushed.
func NewTable(w io.Writer) *tabwriter.Writer { return tabwriter.NewWriter(w, 0, 0, 2, ' ', 0) }

// barWidth is the length of the longest bar, in characters.
const barWidth = 32

// WriteTimeline prints one row for each stage of a run: its result, the durations of Terraform and of the
// gates, and their time in the run. The receipt follows, if there is one.
func WriteTimeline(w io.Writer, events []event.Event) {
	if spans := event.Timeline(events); len(spans) > 0 {
		writeSpans(w, spans)
	}
	for _, e := range events {
		if e.Kind == event.Receipted {
			fmt.Fprintln(w, e.Text)
		}
	}
}

func writeSpans(w io.Writer, spans []*event.Span) {
	byStart := func(a, b *event.Span) int { return a.Started.Compare(b.Started) }
	byEnd := func(a, b *event.Span) int { return a.Ended.Compare(b.Ended) }
	first, last := slices.MinFunc(spans, byStart).Started, slices.MaxFunc(spans, byEnd).Ended
	t := NewTable(w)
	fmt.Fprintf(t, "layer\tstage\tresult\tterraform\tgates\ttotal\t\n")
	for _, s := range spans {
		terraform := time.Duration(0)
		for step, took := range s.Steps {
			if !slices.Contains([]string{"gates", "preflight", "proof", "revoke"}, step) {
				terraform += took
			}
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", s.Layer, s.Stage, result(s.Result), short(terraform),
			short(s.Steps["gates"]), short(s.Ended.Sub(s.Started)), bar(first, last, s))
	}
	fmt.Fprintf(t, "\t\t\t\t\t%s\t\n", short(last.Sub(first)))
	t.Flush() //nolint:errcheck // a closed pipe: nobody reads the table
}

func result(r event.Result) string {
	if r == event.ResultUpToDate {
		return "up to date"
	}
	return cmp.Or(string(r), "unfinished")
}

func short(d time.Duration) string {
	if d == 0 {
		return "-"
	}
	if d < time.Minute {
		return fmt.Sprintf("%.1fs", d.Seconds())
	}
	return d.Round(time.Second).String()
}

// bar draws when a stage ran, within the whole run.
func bar(first, last time.Time, s *event.Span) string {
	whole := last.Sub(first)
	if whole <= 0 {
		return ""
	}
	at := func(x time.Time) int { return int(float64(barWidth) * float64(x.Sub(first)) / float64(whole)) }
	from, to := at(s.Started), at(s.Ended)
	return strings.Repeat(" ", from) + strings.Repeat("█", max(1, to-from))
}
