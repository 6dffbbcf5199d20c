package syntax

import (
	"cmp"
	"fmt"

	"github.com/hashicorp/hcl/v2"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/convert"
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

// Texts calls do with each text in a value that is not empty, and the keys that lead to it.
func Texts(v cty.Value, do func(keys []string, text string)) {
	_ = cty.Walk(v, func(p cty.Path, v cty.Value) (bool, error) { // the function returns none
		var keys []string
		for _, step := range p {
			switch s := step.(type) {
			case cty.GetAttrStep:
				keys = append(keys, s.Name)
			case cty.IndexStep:
				key, _ := convert.Convert(s.Key, cty.String) // of a list: a number
				keys = append(keys, Text(key))
			}
		}
		if Text(v) != "" {
			do(keys, Text(v))
		}
		return true, nil
	})
}
