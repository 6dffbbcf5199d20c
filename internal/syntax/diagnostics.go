package syntax

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/agext/levenshtein"
	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
)

// DidYouMean returns `; did you mean "x"?` for the nearest of names, or nothing where none is near.
func DidYouMean(name string, names []string) string {
	if best := Nearest(name, names); best != "" {
		return fmt.Sprintf("; did you mean %q?", best)
	}
	return ""
}

// Nearest returns the name that name probably stands for, or "".
func Nearest(name string, names []string) string {
	best, distance := "", min(1+(len(name)+2)/3, 5)
	for _, n := range slices.Sorted(slices.Values(names)) {
		if d := difference(strings.ToLower(name), strings.ToLower(n)); d < distance {
			best, distance = n, d
		}
	}
	return best
}

// difference counts edits; two letters that are exchanged are one.
func difference(a, b string) int {
	for i := range min(len(a), len(b)) - 1 {
		if len(a) == len(b) && a[:i]+a[i+1:i+2]+a[i:i+1]+a[i+2:] == b {
			return 1
		}
	}
	return levenshtein.Distance(a, b, nil)
}

// SuggestionFirst moves the suggestion of DidYouMean from the end of a sentence before it.
func SuggestionFirst(detail string) string {
	before, after, found := strings.Cut(detail, "; did you mean ")
	suggested, rest, ends := strings.Cut(after, "?")
	if !found || !ends {
		return detail
	}
	return "Did you mean " + suggested + "? " + before + "." + rest
}

// Plain strips the expressions, from which a writer would print values: secrets, perhaps.
func Plain(diags hcl.Diagnostics) hcl.Diagnostics {
	for _, d := range diags {
		suggestFunction(d)
		d.Expression, d.EvalContext = nil, nil
	}
	return diags
}

// suggestFunction replaces HCL's suggestion for an unknown function: HCL takes any name of a map that is near
// enough, and another one each time.
func suggestFunction(d *hcl.Diagnostic) {
	call, is := hcl.DiagnosticExtra[hclsyntax.FunctionCallUnknownDiagExtra](d)
	if !is {
		return
	}
	var names []string
	for context := d.EvalContext; context != nil; context = context.Parent() {
		names = slices.AppendSeq(names, maps.Keys(context.Functions))
	}
	name := call.CalledFunctionNamespace() + call.CalledFunctionName()
	d.Detail = fmt.Sprintf("There is no function named %q.", name)
	if near := Nearest(name, names); near != "" {
		d.Detail += fmt.Sprintf(" Did you mean %q?", near)
	}
}

// Distinct keeps the first of equal diagnostics about one place: stages may share a value or a file.
func Distinct(diags hcl.Diagnostics) hcl.Diagnostics {
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
