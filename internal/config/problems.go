package config

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/agext/levenshtein"
	"github.com/hashicorp/hcl/v2"
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
	d := &hcl.Diagnostic{Severity: hcl.DiagError, Summary: summary, Detail: fmt.Sprintf(detail, args...)}
	if at.Filename != "" {
		d.Subject = at.Ptr()
	}
	return d
}

// plain strips the expressions, from which a writer would print values: secrets, perhaps.
func plain(diags hcl.Diagnostics) hcl.Diagnostics {
	for _, d := range diags {
		d.Expression, d.EvalContext = nil, nil
	}
	return diags
}

// distinct keeps the first of equal diagnostics about one place: stages may share a value or a file.
func distinct(diags hcl.Diagnostics) hcl.Diagnostics {
	seen := make(map[string]bool)
	return slices.DeleteFunc(diags, func(d *hcl.Diagnostic) bool {
		key := d.Summary + "\x00" + d.Detail
		if d.Subject != nil {
			key = d.Summary + "\x00" + d.Subject.String()
		}
		defer func() { seen[key] = true }()
		return seen[key]
	})
}

// InOrder sorts diagnostics by file and line. Those without a place keep their order.
func InOrder(diags hcl.Diagnostics) hcl.Diagnostics {
	slices.SortStableFunc(diags, func(a, b *hcl.Diagnostic) int {
		x, y := Subject(a), Subject(b)
		if x.Filename == "" && y.Filename == "" {
			return 0
		}
		return cmp.Or(cmp.Compare(x.Filename, y.Filename), cmp.Compare(x.Start.Byte, y.Start.Byte),
			cmp.Compare(a.Summary, b.Summary))
	})
	return diags
}

// Subject is the place of a diagnostic, or the zero range.
func Subject(d *hcl.Diagnostic) hcl.Range {
	if d.Subject == nil {
		return hcl.Range{}
	}
	return *d.Subject
}

// DidYouMean returns `; did you mean "x"?` for the nearest of names, or nothing where none is near.
func DidYouMean(name string, names []string) string {
	best, distance := "", 1+(len(name)+2)/3
	for _, n := range slices.Sorted(slices.Values(names)) {
		if d := levenshtein.Distance(name, n, nil); d < distance {
			best, distance = n, d
		}
	}
	if best == "" {
		return ""
	}
	return fmt.Sprintf("; did you mean %q?", best)
}

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
type Argument struct{ Type, Name string }
