package config

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/agext/levenshtein"
	"github.com/hashicorp/hcl/v2"
	"github.com/zclconf/go-cty/cty"
)

// problem makes an error. The summary begins with its object; the detail explains the problem and the fix in
// sentences.
func problem(at hcl.Range, summary, detail string, args ...any) *hcl.Diagnostic {
	d := &hcl.Diagnostic{Severity: hcl.DiagError, Summary: summary, Detail: fmt.Sprintf(detail, args...)}
	if at.Filename != "" {
		d.Subject = at.Ptr()
	}
	return d
}

// invalid is an unknown value and the error that explains it.
func invalid(ty cty.Type, at hcl.Range, summary, detail string, args ...any) (cty.Value, hcl.Diagnostics) {
	return cty.UnknownVal(ty), hcl.Diagnostics{problem(at, summary, detail, args...)}
}

// plain strips the expressions, from which a writer would print values: secrets, perhaps.
func plain(diags hcl.Diagnostics) hcl.Diagnostics {
	for _, d := range diags {
		d.Expression, d.EvalContext = nil, nil
	}
	return diags
}

// distinct keeps the first of equal diagnostics about one place, as several stages may
// share a value or a file.
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

// DidYouMean returns `; did you mean "x"?` for the nearest of names, or
// nothing where none is near.
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

// place renders a position, for the detail of a problem elsewhere.
func place(at hcl.Range) string { return fmt.Sprintf("%s:%d", at.Filename, at.Start.Line) }

// wholeFile is the place of a value that fills a file, or stands in none.
func wholeFile(name string) hcl.Range {
	return hcl.Range{Filename: name, Start: hcl.InitialPos, End: hcl.InitialPos}
}

// orStop returns a hint, or a full stop where there is none.
func orStop(hint string) string { return cmp.Or(hint, ".") }

// Argument names an argument of a gate or preflight type. It is the Extra of a
// diagnostic that finds the argument unsuitable.
type Argument struct{ Type, Name string }

// inOrder sorts diagnostics by file and line.
func inOrder(diags hcl.Diagnostics) hcl.Diagnostics {
	at := func(d *hcl.Diagnostic) hcl.Range {
		if d.Subject == nil {
			return hcl.Range{}
		}
		return *d.Subject
	}
	slices.SortStableFunc(diags, func(a, b *hcl.Diagnostic) int {
		x, y := at(a), at(b)
		if x.Filename == "" && y.Filename == "" {
			return 0
		}
		return cmp.Or(cmp.Compare(x.Filename, y.Filename), cmp.Compare(x.Start.Byte, y.Start.Byte),
			cmp.Compare(a.Summary, b.Summary))
	})
	return diags
}
