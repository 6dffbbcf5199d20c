// Package ui prints runs for people and for programs. Its contract:
//
//   - stdout carries the result of a command: a table, a value, JSON.
//   - stderr carries progress, one line for each change of state, so that stdout can be piped.
//   - On a terminal, a view below the lines shows the work in progress and is redrawn in place; lines report
//     what is worth reading later.
//   - Elsewhere, each line is complete by itself: one for each change, and one every 30 seconds for each
//     stage that waits.
//   - With -o json, each event of a run is one JSON object, on a line of stdout.
//
// The view is a pure function of events, time, usual durations and size (view.go). A screen draws it without
// a library such as bubbletea, which would handle Ctrl-C and leave the terminal in raw mode if castle is
// killed. Every text that arrives here is masked. What may have colours makes texts of others visible itself.
package ui

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/hashicorp/hcl/v2"

	"github.com/ephemeral-castle/castle/internal/event"
	"github.com/ephemeral-castle/castle/internal/foreign"
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

// ReportProblems writes an event for each error of a configuration.
func (j *JSON) ReportProblems(diags hcl.Diagnostics) {
	for _, d := range diags {
		if d.Severity != hcl.DiagError {
			continue
		}
		e := event.Event{Time: time.Now(), Kind: event.ConfigError, Text: diagnosticText(d)}
		if d.Subject != nil {
			e.File = d.Subject.Filename
		}
		if d.Subject != nil && !d.Subject.Empty() { // an empty range stands for the whole file
			e.Line = d.Subject.Start.Line
		}
		j.Report(e)
	}
}

// diagnosticText is a problem without its place, in one line.
func diagnosticText(d *hcl.Diagnostic) string {
	return strings.TrimSuffix(d.Summary+". "+d.Detail, ". ")
}

// Answers is a reporter that prints the answers to interrupts alone: for commands that pass on other output.
type Answers struct{ W io.Writer }

// Report prints an event that answers an interrupt.
func (a Answers) Report(e event.Event) {
	if e.Kind == event.Interrupted || e.Kind == event.Waiting {
		fmt.Fprintln(a.W, "castle: "+e.Text)
	}
}

// diagnosticWidth is where the text of a diagnostic is wrapped on a wide terminal.
const diagnosticWidth = 100

// WriteDiagnostics prints the problems of a configuration, and returns how many have a place: each with that,
// the line there and a fix. It omits the line if the line may hold a secret or the place is no file, such as
// --var. A problem without a place concerns the command line and gets one line.
func WriteDiagnostics(w io.Writer, diags hcl.Diagnostics, files map[string]*hcl.File, colour bool) (int,
	error) {
	width := uint(min(Columns(w, 0), diagnosticWidth)) // 0: not wrapped
	var located hcl.Diagnostics
	for _, d := range diags {
		if d.Subject == nil {
			fmt.Fprintln(w, "castle:", foreign.Text(diagnosticText(d)))
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
	var plain strings.Builder
	if err := hcl.NewDiagnosticTextWriter(&plain, files, width, false).WriteDiagnostics(located); err != nil {
		return 0, err
	}
	if visible := foreign.Text(plain.String()); visible != plain.String() || !colour {
		_, err := io.WriteString(w, visible)
		return len(located), err
	}
	return len(located), hcl.NewDiagnosticTextWriter(w, files, width, true).WriteDiagnostics(located)
}

// unquoted is the extra of a diagnostic whose line may hold a secret, unlike the rest of its file.
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
