package secretstore

import (
	"os"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/convert"
)

// listed is the variable of secrets/local: its file can be given as it is.
const listed = "local_secrets"

// ReadFile reads secrets from a file that nobody else may be able to read:
// NAME = "value" lines, or the local_secrets of a secrets.tfvars.
func ReadFile(path string) (map[string]string, map[string]*hcl.File, hcl.Diagnostics) {
	wrong := func(summary, detail string) hcl.Diagnostics {
		return hcl.Diagnostics{{Severity: hcl.DiagError, Summary: summary, Detail: detail}}
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil, nil, wrong("--from: "+err.Error(), "")
	}
	if info.Mode().Perm()&0o077 != 0 {
		return nil, nil, wrong(path+": readable by others", "It holds secrets, so its mode must be 0600. Run chmod 600 "+path)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, nil, wrong("--from: "+err.Error(), "")
	}
	f, diags := hclsyntax.ParseConfig(text, path, hcl.InitialPos)
	// The text is not shown beside what is wrong: it is secret.
	files := map[string]*hcl.File{path: {}}
	if diags.HasErrors() {
		return nil, files, diags
	}
	attributes, diags := f.Body.JustAttributes()
	secrets := map[string]string{}
	for name, attr := range attributes {
		v, more := attr.Expr.Value(nil)
		if more.HasErrors() {
			diags = append(diags, more...)
			continue
		}
		values := map[string]cty.Value{name: v}
		if name == listed && v.CanIterateElements() {
			values = v.AsValueMap()
		}
		for name, v := range values {
			text, err := convert.Convert(v, cty.String)
			if err != nil || text.IsNull() {
				diags = append(diags, &hcl.Diagnostic{Severity: hcl.DiagError, Subject: attr.NameRange.Ptr(), Summary: name + ": no text", Detail: "A secret is a text in quotes, or <<EOT … EOT."})
				continue
			}
			secrets[name] = text.AsString()
		}
	}
	return secrets, files, diags
}
