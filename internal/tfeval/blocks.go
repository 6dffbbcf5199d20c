package tfeval

import (
	"fmt"
	"slices"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
)

// Block is one instance of a resource, a data source or a provider.
type Block struct {
	Type, Name string // the labels; a provider has one only, which is both
	Key        string // of for_each
	Err        error  // why the instances of the block are not known; the other fields then speak of all

	each   map[string]cty.Value
	block  *hclsyntax.Block
	module *Module
}

// Range is where the block is declared.
func (b Block) Range() hcl.Range { return b.block.DefRange() }

// Value evaluates an argument; NilVal if the block does not have it.
func (b Block) Value(argument string) (cty.Value, error) { return b.in(b.block.Body, argument) }

func (b Block) in(body *hclsyntax.Body, argument string) (cty.Value, error) {
	attr := body.Attributes[argument]
	if attr == nil {
		return cty.NilVal, nil
	}
	return b.module.Evaluate(attr.Expr, b.each)
}

// Text is an argument that is a string; "" if it is not known or not set.
func (b Block) Text(argument string) string {
	v, err := b.Value(argument)
	if err != nil {
		return ""
	}
	return Text(v)
}

// Instances lists the instances of the blocks of a kind (resource, data, provider)
// and a type; the empty type stands for all. Where for_each is not known, a block
// with Err stands for them.
func (m *Module) Instances(kind, typ string) []Block {
	var all []Block
	for _, b := range m.Blocks {
		if b.Type == kind && len(b.Labels) > 0 && (typ == "" || b.Labels[0] == typ) {
			all = append(all, m.instances(b)...)
		}
	}
	return all
}

// Known lists the instances that are known.
func (m *Module) Known(kind, typ string) []Block {
	return slices.DeleteFunc(m.Instances(kind, typ), func(b Block) bool { return b.Err != nil })
}

func (m *Module) instances(b *hclsyntax.Block) []Block {
	one := Block{Type: b.Labels[0], Name: b.Labels[len(b.Labels)-1], block: b, module: m}
	if count, err := one.Value("count"); err == nil {
		if n, ok := Whole(count); ok && n == 0 {
			return nil
		}
	}
	if b.Body.Attributes["for_each"] == nil {
		return []Block{one}
	}
	v, err := one.Value("for_each")
	if err == nil && (!v.IsKnown() || v.IsNull() || !v.CanIterateElements()) {
		err = &UnknownError{"for_each"}
	}
	if one.Err = err; err != nil {
		return []Block{one}
	}
	var all []Block
	for it := v.ElementIterator(); it.Next(); {
		key, value := it.Element()
		if one.Key = Text(key); one.Key == "" {
			one.Key = fmt.Sprint(len(all))
		}
		one.each = map[string]cty.Value{
			"each": cty.ObjectVal(map[string]cty.Value{"key": key, "value": value}),
		}
		all = append(all, one)
	}
	return all
}

// Local is a local value; NilVal if there is none or it is not known.
func (m *Module) Local(name string) cty.Value {
	if m.locals[name] == nil {
		return cty.NilVal
	}
	v, err := m.local(name)
	if err != nil {
		return cty.NilVal
	}
	return v
}

// Has reports whether the module has any block of a kind.
func (m *Module) Has(kind string) bool {
	return slices.ContainsFunc(m.Blocks, func(b *hclsyntax.Block) bool { return b.Type == kind })
}

// Outputs are the outputs whose values are known.
func (m *Module) Outputs() map[string]cty.Value {
	all := map[string]cty.Value{}
	for _, b := range m.Blocks {
		if b.Type != "output" || len(b.Labels) != 1 || b.Body.Attributes["value"] == nil {
			continue
		}
		if v, err := m.Evaluate(b.Body.Attributes["value"].Expr, nil); err == nil && v.IsWhollyKnown() {
			all[b.Labels[0]] = v
		}
	}
	return all
}
