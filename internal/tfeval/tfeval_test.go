package tfeval_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/zclconf/go-cty/cty"

	"github.com/ephemeral-castle/castle/internal/tfeval"
)

// module reads a module of which main.tf is the text.
func module(text string, variables map[string]cty.Value) *tfeval.Module {
	return tfeval.ReadFolder(fstest.MapFS{"main.tf": {Data: []byte(text)}}, variables)
}

func texts(all ...string) cty.Value {
	var values []cty.Value
	for _, s := range all {
		values = append(values, cty.StringVal(s))
	}
	return cty.ListVal(values)
}

func TestFailedValidationNamesItsElements(t *testing.T) {
	nodes := cty.MapVal(map[string]cty.Value{
		"a": cty.ObjectVal(map[string]cty.Value{"id": cty.NumberIntVal(1)}),
		"b": cty.ObjectVal(map[string]cty.Value{"id": cty.NumberIntVal(2)}),
		"c": cty.ObjectVal(map[string]cty.Value{"id": cty.NumberIntVal(1)}),
	})
	for _, c := range []struct{ name, condition, want string }{
		{"holds", `length(var.nodes) == 3`, ``},
		{"one by itself", `alltrue([for n in var.nodes : n.id < 2])`, `reads nodes.id: nodes b`},
		{"with another variable", `alltrue([for n in var.nodes : n.id != var.free])`,
			`reads free nodes.id: nodes b`},
		{"each with another", `length(distinct([for n in var.nodes : n.id])) == length(var.nodes)`,
			`reads nodes nodes.id: nodes c, beside a`},
		{"a matter of all", `length([for n in var.nodes : n if n.id == 1]) == 1`, `reads nodes nodes.id: `},
		{"by key", `!contains(keys(var.nodes), "b")`, `reads nodes: nodes b`},
		{"of a list", `alltrue([for s in var.names : startswith(s, "x")])`, `reads names: names 1`},
		{"not known", `alltrue([for n in var.nodes : n.id < var.unknown])`, ``},
		{"an unknown function", `can(templatestring("x", {}))`, ``},
	} {
		t.Run(c.name, func(t *testing.T) {
			text := "variable \"nodes\" {\n  validation {\n    condition = " + c.condition +
				"\n    error_message = \"No.\"\n  }\n}\n"
			m := module(text, map[string]cty.Value{
				"nodes": nodes, "names": texts("x1", "y1"), "free": cty.NumberIntVal(2),
				"unknown": cty.UnknownVal(cty.Number),
			})
			got := ""
			for _, f := range m.FailedValidations() {
				got = fmt.Sprintf("reads %s: %s", strings.Join(f.Reads, " "),
					strings.TrimSpace(f.Collection+" "+strings.Join(f.Elements, " ")))
				if len(f.Others) > 0 {
					got += ", beside " + strings.Join(f.Others, " ")
				}
			}
			if strings.TrimSpace(got) != strings.TrimSpace(c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestInstancesOfABlock(t *testing.T) {
	m := module(`
locals { url = "https://${var.host}" }
resource "x" "one" { url = local.url }
resource "x" "none" { count = 0 }
resource "x" "each" {
  for_each = var.names
  url      = each.value
}
resource "x" "later" { for_each = data.y.z }
output "url" { value = local.url }
output "unknown" { value = data.y.z }
`, map[string]cty.Value{"host": cty.StringVal("h"), "names": texts("n", "m")})
	var got []string
	for _, b := range m.Instances("resource", "x") {
		got = append(got, fmt.Sprintf("%s %s %s %v", b.Name, b.Key, b.Text("url"), b.Err))
	}
	want := []string{"one  https://h <nil>", "each 0 n <nil>", "each 1 m <nil>",
		"later   data.y is not known before a run"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
	if known := m.Known("resource", "x"); len(known) != 3 {
		t.Errorf("%d instances are known", len(known))
	}
	if o := m.Outputs(); len(o) != 1 || tfeval.Text(o["url"]) != "https://h" {
		t.Errorf("outputs %v", o)
	}
	m.SetData(map[string]map[string]cty.Value{"y": {"z": texts("k")}})
	if o := m.Outputs(); len(o) != 2 {
		t.Errorf("outputs with data %v", o)
	}
}

func TestAResourceIsIgnoredOnlyAsAWhole(t *testing.T) {
	m := module(`
resource "vm" "a" {
  lifecycle {
    ignore_changes = all
  }
}
resource "vm" "b" {
  lifecycle {
    ignore_changes = [data, metadata]
  }
}
resource "vm" "c" {}
`, nil)
	for name, want := range map[string]bool{"a": true, "b": false, "c": false, "absent": false} {
		if got := m.Ignores("vm", name); got != want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
