package check

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"

	"github.com/ephemeral-castle/castle/internal/module"
	"github.com/ephemeral-castle/castle/internal/syntax"
	"github.com/ephemeral-castle/castle/internal/tfeval"
)

// declarations are the names of a module and where they are declared: "var.vip", "helm_release.flux".
type declarations map[string]hcl.Range

// checkDeclarations finds references to names that a module does not declare, and names declared twice.
// Terraform would report both once the stages before have been applied.
func checkDeclarations(c *cluster, report reporter) {
	for _, s := range c.config.Stages {
		m := tfeval.Read(s, nil)
		native := func(f *hcl.File) bool { _, is := f.Body.(*hclsyntax.Body); return is }
		if files := s.TerraformFiles(); len(files) == 0 || !native(files[0]) {
			continue // what JSON declares is not read
		}
		declared := declarations{}
		for _, b := range m.Blocks {
			declared.add(b, s.Name, report)
			checkArguments(b, s.Name, report)
		}
		for _, b := range m.Blocks {
			if b.Type != "moved" && b.Type != "removed" { // they name what is gone
				declared.check(b.Body, s.Name, report)
			}
		}
		if cycle := module.Cycle(m.Blocks, declared); len(cycle) > 0 {
			report("cycle", declared[cycle[0]], fmt.Sprintf("stage %s: %s needs itself", s.Name, cycle[0]),
				"%s. Terraform finds no order: let one of them read the others no more.",
				strings.Join(cycle, " needs "))
		}
	}
}

// checkArguments finds arguments of variables and outputs that Terraform does not know, and missing values.
func checkArguments(b *hclsyntax.Block, stage string, report reporter) {
	known := map[string][]string{
		"variable": {"default", "deprecated", "description", "ephemeral", "nullable", "sensitive", "type"},
		"output":   {"depends_on", "deprecated", "description", "ephemeral", "sensitive", "type", "value"},
	}[b.Type]
	if known == nil {
		return
	}
	of := fmt.Sprintf("stage %s: %s %s: ", stage, b.Type, strings.Join(b.Labels, "."))
	meant := false
	for _, name := range names(b.Body.Attributes) {
		if !slices.Contains(known, name) {
			near := syntax.DidYouMean(name, known)
			meant = meant || strings.Contains(near, `"value"`)
			report("argument-unknown", b.Body.Attributes[name].NameRange, of+"unknown argument "+name,
				"Its arguments are %s%s", strings.Join(known, ", "), cmp.Or(near, "."))
		}
	}
	if b.Body.Attributes["value"] == nil && b.Type == "output" && !meant {
		report("argument-unknown", b.DefRange(), of+"no value", "An output needs one: write value = ….")
	}
}

// add adds the names that a block declares.
func (d declarations) add(b *hclsyntax.Block, stage string, report reporter) {
	found := map[string]hcl.Range{}
	switch {
	case b.Type == "locals":
		for name, attr := range b.Body.Attributes {
			found["local."+name] = attr.NameRange
		}
	case b.Type == "variable":
		found["var."+strings.Join(b.Labels, ".")] = b.DefRange()
	case b.Type == "resource":
		found[strings.Join(b.Labels, ".")] = b.DefRange()
	case slices.Contains([]string{"module", "output", "data", "ephemeral"}, b.Type):
		found[b.Type+"."+strings.Join(b.Labels, ".")] = b.DefRange()
	}
	for _, name := range names(found) {
		if first, twice := d[name]; twice && !strings.HasSuffix(found[name].Filename, "override.tf") {
			report("declared-twice", found[name], fmt.Sprintf("stage %s: %s is declared twice", stage, name),
				"The first one is at %s. Rename or remove one of them.", syntax.Place(first))
		}
		d[name] = found[name]
	}
}

// check checks the references of a body. An unknown type of resource may be the iterator of a dynamic block.
func (d declarations) check(body *hclsyntax.Body, stage string, report reporter) {
	for _, argument := range names(body.Attributes) {
		for _, t := range body.Attributes[argument].Expr.Variables() {
			name, kind, parts := module.NameOf(t)
			_, known := d[name]
			if known || strings.Count(name, ".") < parts-1 || t.RootName() == "output" ||
				t.RootName() == "ephemeral" {
				continue
			}
			var similar []string
			for other := range d {
				if i := strings.LastIndexByte(name, '.'); i >= 0 && strings.HasPrefix(other, name[:i+1]) {
					similar = append(similar, other[i+1:])
				}
			}
			if kind == "resource" && len(similar) == 0 {
				continue
			}
			near := syntax.DidYouMean(name[strings.LastIndexByte(name, '.')+1:], similar)
			report("undeclared", t.SourceRange(), fmt.Sprintf("stage %s: %s is not declared", stage, name),
				"The module has no such %s%s", kind, cmp.Or(near, "."))
		}
	}
	for _, b := range body.Blocks {
		d.check(b.Body, stage, report)
	}
}
