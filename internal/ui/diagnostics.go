package ui

import (
	"fmt"
	"io"

	"github.com/hashicorp/hcl/v2"
)

// diagnosticWidth is where the text of a diagnostic is wrapped on a terminal.
const diagnosticWidth = 100

// WriteDiagnostics writes what is wrong with a configuration: each problem with
// its place, the line there and what to do. A place that must not be quoted, as
// it may hold a secret, or that is no file, such as --var, is only named.
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

// unquoted is the extra of a diagnostic whose line may hold a secret although the rest of its file may be quoted.
type unquoted interface{ Unquoted() bool }

// place is a range's file and line; an empty range stands for the whole file.
func place(at hcl.Range) string {
	if at.Empty() {
		return at.Filename
	}
	return fmt.Sprintf("%s:%d", at.Filename, at.Start.Line)
}
