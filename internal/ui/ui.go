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
	"encoding/json"
	"fmt"
	"io"
	"sync"

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
type Answers struct{ w io.Writer }

// NewAnswers returns a reporter for w.
func NewAnswers(w io.Writer) Answers { return Answers{w} }

// Report prints an event that answers an interrupt.
func (a Answers) Report(e event.Event) {
	if e.Kind == event.Interrupted || e.Kind == event.Waiting {
		fmt.Fprintln(a.w, "castle: "+e.Text)
	}
}

// diagnosticWidth is where the text of a diagnostic is wrapped on a terminal.
const diagnosticWidth = 100

// WriteDiagnostics prints the problems of a configuration: each with its place, the line there and a fix. It
// omits the line if the line may hold a secret or the place is no file, such as --var.
func WriteDiagnostics(w io.Writer, diags hcl.Diagnostics, files map[string]*hcl.File, terminal bool) error {
	width := uint(0)
	if terminal {
		width = diagnosticWidth
	}
	named := make(hcl.Diagnostics, len(diags))
	for i, d := range diags {
		named[i] = d
		private, ok := hcl.DiagnosticExtra[unquoted](d)
		if d.Subject == nil || files[d.Subject.Filename] != nil && !(ok && private.Unquoted()) {
			continue
		}
		c := *d
		c.Subject, c.Context = nil, nil
		c.Summary = fmt.Sprintf("%s: %s", place(*d.Subject), d.Summary)
		named[i] = &c
	}
	return hcl.NewDiagnosticTextWriter(w, files, width, terminal).WriteDiagnostics(named)
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
