package config

import (
	"cmp"
	"fmt"

	"github.com/hashicorp/hcl/v2"

	"github.com/ephemeral-castle/castle/internal/syntax"
)

// problems collects diagnostics.
type problems struct{ hcl.Diagnostics }

func (p *problems) report(diags ...*hcl.Diagnostic) { p.Diagnostics = append(p.Diagnostics, diags...) }

// add reports an error, as problem makes it.
func (p *problems) add(at hcl.Range, summary, detail string, args ...any) {
	p.report(problem(at, summary, detail, args...))
}

// problem makes an error. The summary begins with its object; the detail has sentences, also about the fix.
func problem(at hcl.Range, summary, detail string, args ...any) *hcl.Diagnostic {
	d := &hcl.Diagnostic{Severity: hcl.DiagError, Summary: summary,
		Detail: syntax.SuggestionFirst(fmt.Sprintf(detail, args...))}
	if at.Filename != "" {
		d.Subject = at.Ptr()
	}
	return d
}

// DidYouMean is that of package syntax.
func DidYouMean(name string, names []string) string { return syntax.DidYouMean(name, names) }

// hint is DidYouMean, or the full stop of a sentence where no name is near.
func hint(name string, names []string) string { return cmp.Or(DidYouMean(name, names), ".") }

// Place names a position within a sentence: its file and line, or its file alone where the range is empty.
func Place(at hcl.Range) string {
	if at.Empty() {
		return at.Filename
	}
	return fmt.Sprintf("%s:%d", at.Filename, at.Start.Line)
}

// wholeFile is the place of a value that fills a file, or stands in none.
func wholeFile(name string) hcl.Range {
	return hcl.Range{Filename: name, Start: hcl.InitialPos, End: hcl.InitialPos}
}

// Argument is the Extra of a diagnostic that finds an argument of a gate or preflight type unsuitable.
type Argument struct {
	Type, Name string
	Variable   string // the first that its expression names; "" if it names none
}
