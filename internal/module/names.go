package module

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"

	"github.com/ephemeral-castle/castle/internal/graph"
)

// NameOf names what a reference leads to ("var.vip", "helm_release.flux"), its kind, and its number of parts.
func NameOf(t hcl.Traversal) (name, kind string, parts int) {
	name, parts = t.RootName(), 2
	if name == "data" {
		parts = 3
	}
	kind = cmp.Or(map[string]string{"var": "variable", "local": "local value", "module": "module",
		"data": "data source"}[name], "resource")
	for _, step := range t[1:min(parts, len(t))] {
		if attr, ok := step.(hcl.TraverseAttr); ok {
			name += "." + attr.Name
		}
	}
	return name, kind, parts
}

// Cycle returns declared names of a module that need each other, the first one again at the end; nil without
// any. A variable needs what its validations read, as Terraform checks them before anything reads it. Modules
// are left out: their inputs and outputs are nodes of their own to Terraform.
func Cycle[R any](blocks hclsyntax.Blocks, declared map[string]R) []string {
	needs := map[string][]string{}
	for _, b := range blocks {
		of := map[string]hclsyntax.Node{}
		switch name := strings.Join(b.Labels, "."); b.Type {
		case "locals":
			for name, attr := range b.Body.Attributes {
				of["local."+name] = attr
			}
		case "variable":
			of["var."+name] = b.Body.Blocks
		case "resource":
			of[name] = b.Body
		case "data":
			of["data."+name] = b.Body
		}
		for name, node := range of {
			for _, read := range reads(node) {
				if _, known := declared[read]; known && (read != name || b.Type == "locals") {
					needs[name] = append(needs[name], read)
				}
			}
		}
	}
	_, err := graph.Sort(slices.Sorted(maps.Keys(needs)), func(name string) []string { return needs[name] })
	if cycle, is := errors.AsType[*graph.CycleError[string]](err); is {
		return cycle.Path
	}
	return nil
}

// reads lists the names in a part of a module, without those of a for expression.
func reads(node hclsyntax.Node) (all []string) {
	_ = hclsyntax.VisitAll(node, func(n hclsyntax.Node) hcl.Diagnostics { // it finds no problems
		if attr, is := n.(*hclsyntax.Attribute); is {
			for _, t := range attr.Expr.Variables() {
				name, _, _ := NameOf(t)
				all = append(all, name)
			}
		}
		return nil
	})
	return all
}
