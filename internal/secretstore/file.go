package secretstore

import (
	"os"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/convert"
)

// localSecrets is the variable of secrets/local, whose secrets.tfvars can be read unchanged.
const localSecrets = "local_secrets"

// ReadFile reads secrets from a file that only its owner can read: NAME = "value" lines,
// or the local_secrets of a secrets.tfvars.
func ReadFile(path string) (map[string]string, map[string]*hcl.File, hcl.Diagnostics) {
	fail := func(summary, detail string) hcl.Diagnostics {
		return hcl.Diagnostics{{Severity: hcl.DiagError, Summary: summary, Detail: detail}}
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil, nil, fail("--from: "+err.Error(), "")
	}
	if info.Mode().Perm()&0o077 != 0 {
		return nil, nil, fail(path+": readable by others",
			"The file holds secrets, so its mode must be 0600. Run chmod 600 "+path)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, nil, fail("--from: "+err.Error(), "")
	}
	f, diags := hclsyntax.ParseConfig(text, path, hcl.InitialPos)
	// Diagnostics must not quote the text: it is secret.
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
		if name == localSecrets && v.CanIterateElements() {
			values = v.AsValueMap()
		}
		for name, v := range values {
			text, err := convert.Convert(v, cty.String)
			if err != nil || text.IsNull() {
				diags = append(diags, &hcl.Diagnostic{
					Severity: hcl.DiagError, Subject: attr.NameRange.Ptr(),
					Summary: name + ": not a text", Detail: "A secret is a text in quotes, or <<EOT … EOT.",
				})
				continue
			}
			secrets[name] = text.AsString()
		}
	}
	return secrets, files, diags
}
