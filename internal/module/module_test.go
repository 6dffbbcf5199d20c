package module_test

import (
	"strings"
	"testing"

	"github.com/hashicorp/hcl/v2/hclparse"
	"github.com/hashicorp/terraform-config-inspect/tfconfig"
	"github.com/zclconf/go-cty/cty"

	"github.com/ephemeral-castle/castle/internal/module"
)

func TestTextIsSettledByTheVariablesType(t *testing.T) {
	f, diags := hclparse.NewParser().ParseHCL([]byte(`
variable "name" { type = string }
variable "count" {
  type     = number
  default  = 3
  nullable = false
}
variable "node" {
  type = object({ role = optional(string, "worker"), id = number })
}
`), "variables.tf")
	inspected := tfconfig.NewModule(".")
	diags = append(diags, tfconfig.LoadModuleFromFile(f, inspected)...)
	variables := map[string]module.Variable{}
	diags = append(diags, module.Read(f, inspected, variables, nil)...)
	if diags.HasErrors() {
		t.Fatal(diags)
	}
	for _, c := range []struct {
		variable, text string
		want           cty.Value
		wrong          string
	}{
		{variable: "name", text: "[1]", want: cty.StringVal("[1]")},
		{variable: "count", text: "7", want: cty.NumberIntVal(7)},
		{variable: "count", text: "seven", wrong: "a number"},
		{variable: "node", text: "{ id = 421 }", want: cty.ObjectVal(map[string]cty.Value{
			"role": cty.StringVal("worker"), "id": cty.NumberIntVal(421)})},
		{variable: "node", text: "{ id = }", wrong: "its text is read as an expression"},
	} {
		got, err := variables[c.variable].SettleText(c.text)
		switch {
		case c.wrong != "" && (err == nil || !strings.Contains(err.Error(), c.wrong) ||
			!strings.Contains(err.Error(), "declared at variables.tf:")):
			t.Errorf("%s = %s: error %v, want %q with the place", c.variable, c.text, err, c.wrong)
		case c.wrong == "" && (err != nil || !got.RawEquals(c.want)):
			t.Errorf("%s = %s: %#v, %v", c.variable, c.text, got, err)
		}
	}
	if got, err := variables["count"].Settle(cty.NullVal(cty.Number)); err != nil ||
		!got.RawEquals(cty.NumberIntVal(3)) {
		t.Errorf("null without nullable: %#v, %v, want the default", got, err)
	}
}
