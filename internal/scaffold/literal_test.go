package scaffold

import (
	"testing"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
)

func TestLiteralIsTheValue(t *testing.T) {
	for _, text := range []string{"", "a", "a\nb", "a\nb\n", "\n", "\n\n", "a\n\n", "  a\n b\n", "EOT",
		"a\n  EOT\nb\n", "a\nEOTX\n", "${a}\n%{b}\n", "$${a}\n%%{b}\n", "$\n{a}\n", "\"q\"\n\\n\n",
		"tab\tb\nc\n", "cr\r\nb\n",
		"bell\a\nb\n", "ü\n日\n"} {
		v := cty.ObjectVal(map[string]cty.Value{"list": cty.TupleVal([]cty.Value{cty.StringVal(text),
			cty.ObjectVal(map[string]cty.Value{text: cty.StringVal(text)}), cty.NumberIntVal(1)}),
			"text": cty.StringVal(text)})
		f, diags := hclsyntax.ParseConfig([]byte("a = "+Literal(v)+"\n"), "a.hcl", hcl.InitialPos)
		if diags.HasErrors() {
			t.Errorf("%q: %v\n%s", text, diags, Literal(v))
			continue
		}
		attributes, _ := f.Body.JustAttributes()
		if got, diags := attributes["a"].Expr.Value(nil); diags.HasErrors() || !got.RawEquals(v) {
			t.Errorf("%q: %#v, %v\n%s", text, got, diags, Literal(v))
		}
	}
}
