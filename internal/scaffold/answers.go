package scaffold

import (
	"os"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/convert"
)

// ReadAnswers reads a file of lines KEY = VALUE, in HCL; a list is written with commas.
func ReadAnswers(file string) (map[string]string, map[string]*hcl.File, hcl.Diagnostics) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, nil, hcl.Diagnostics{{Severity: hcl.DiagError, Summary: "--answers: " + err.Error()}}
	}
	f, diags := hclsyntax.ParseConfig(data, file, hcl.InitialPos)
	files := map[string]*hcl.File{file: f}
	if diags.HasErrors() {
		return nil, files, diags
	}
	attributes, diags := f.Body.JustAttributes()
	answers := map[string]string{}
	for name, attr := range attributes {
		v, more := attr.Expr.Value(nil)
		diags = append(diags, more...)
		if more.HasErrors() {
			continue
		}
		text, ok := asText(v)
		if !ok {
			diags = append(diags, &hcl.Diagnostic{
				Severity: hcl.DiagError, Subject: attr.Expr.Range().Ptr(),
				Summary: name + ": unsuitable answer", Detail: "An answer is a text, a number, or a list of these.",
			})
		}
		answers[name] = text
	}
	return answers, files, diags
}

func asText(v cty.Value) (string, bool) {
	if !v.IsNull() && v.Type().IsTupleType() {
		var all []string
		for _, e := range v.AsValueSlice() {
			text, ok := asText(e)
			if !ok {
				return "", false
			}
			all = append(all, text)
		}
		return strings.Join(all, ","), true
	}
	text, err := convert.Convert(v, cty.String)
	if err != nil || text.IsNull() || !text.IsKnown() {
		return "", false
	}
	return text.AsString(), true
}
