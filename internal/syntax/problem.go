package syntax

import (
	"cmp"
	"fmt"

	"github.com/hashicorp/hcl/v2"
	"github.com/zclconf/go-cty/cty"
)

// Problem makes an error. The summary begins with its object; the detail has sentences, also about the fix.
func Problem(at hcl.Range, summary, detail string, args ...any) *hcl.Diagnostic {
	d := &hcl.Diagnostic{Severity: hcl.DiagError, Summary: summary,
		Detail: SuggestionFirst(fmt.Sprintf(detail, args...))}
	if at.Filename != "" {
		d.Subject = at.Ptr()
	}
	return d
}

// Hint is DidYouMean, or the full stop of a sentence where no name is near.
func Hint(name string, names []string) string { return cmp.Or(DidYouMean(name, names), ".") }

// Place names a position within a sentence: its file and line, or its file alone where the range is empty.
func Place(at hcl.Range) string {
	if at.Empty() {
		return at.Filename
	}
	return fmt.Sprintf("%s:%d", at.Filename, at.Start.Line)
}

// WholeFile is the place of a value that fills a file, or stands in none.
func WholeFile(name string) hcl.Range {
	return hcl.Range{Filename: name, Start: hcl.InitialPos, End: hcl.InitialPos}
}

// Text returns a string, and "" for everything else.
func Text(v cty.Value) string {
	if !v.IsKnown() || v.IsNull() || v.Type() != cty.String {
		return ""
	}
	return v.AsString()
}
