package check

import (
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/function"

	"github.com/ephemeral-castle/castle/internal/config"
)

// Reading is a stage's Terraform, read with the values of its variables: what its
// blocks are given, and what the stage would say if its data sources said this.
type Reading struct{ m *module }

// Read reads a stage; inputs may have unknown values.
func Read(s *config.Stage, inputs map[string]cty.Value) *Reading {
	m := readModule(s, inputs)
	// Nothing is marked here, so that this is all they do.
	m.functions["nonsensitive"], m.functions["sensitive"] = same(), same()
	return &Reading{m}
}

func same() function.Function {
	return function.New(&function.Spec{
		Params: []function.Parameter{{Name: "value", Type: cty.DynamicPseudoType, AllowNull: true, AllowUnknown: true, AllowDynamicType: true}},
		Type:   func(args []cty.Value) (cty.Type, error) { return args[0].Type(), nil },
		Impl:   func(args []cty.Value, _ cty.Type) (cty.Value, error) { return args[0], nil },
	})
}

// Block is one instance of a block, with those of its arguments that are known.
type Block struct {
	Name      string
	Arguments map[string]cty.Value

	block *hclsyntax.Block
}

// Text is an argument that is a string; empty if it is not known or none.
func (b Block) Text(argument string) string {
	v, ok := b.Arguments[argument]
	if !ok || !v.IsKnown() || v.IsNull() || v.Type() != cty.String {
		return ""
	}
	return v.AsString()
}

// Blocks lists the instances of the blocks of a kind (resource, data, provider)
// and a type. One whose for_each is not known is left out.
func (r *Reading) Blocks(kind, of string) []Block {
	var all []Block
	for _, b := range r.m.blocks {
		if b.Type != kind || len(b.Labels) == 0 || b.Labels[0] != of {
			continue
		}
		for _, beside := range r.instances(b) {
			one := Block{Name: b.Labels[len(b.Labels)-1], Arguments: map[string]cty.Value{}, block: b}
			for name, attr := range b.Body.Attributes {
				if v, err := r.m.evaluate(attr.Expr, beside); err == nil {
					one.Arguments[name] = v
				}
			}
			all = append(all, one)
		}
	}
	return all
}

// instances are the values of each for a block: one nil without for_each.
func (r *Reading) instances(b *hclsyntax.Block) []map[string]cty.Value {
	forEach, ok := b.Body.Attributes["for_each"]
	if !ok {
		return []map[string]cty.Value{nil}
	}
	v, err := r.m.evaluate(forEach.Expr, nil)
	if err != nil || !v.IsKnown() || v.IsNull() || !v.CanIterateElements() {
		return nil
	}
	var all []map[string]cty.Value
	for it := v.ElementIterator(); it.Next(); {
		key, value := it.Element()
		all = append(all, map[string]cty.Value{"each": cty.ObjectVal(map[string]cty.Value{"key": key, "value": value})})
	}
	return all
}

// Local is a local value; the zero value if there is none or it is not known.
func (r *Reading) Local(name string) cty.Value {
	expr, ok := r.m.locals[name]
	if !ok {
		return cty.NilVal
	}
	v, err := r.m.evaluate(expr, nil)
	if err != nil {
		return cty.NilVal
	}
	return v
}

// Has reports whether the stage has any block of a kind.
func (r *Reading) Has(kind string) bool {
	for _, b := range r.m.blocks {
		if b.Type == kind {
			return true
		}
	}
	return false
}

// Say has the data sources say something, by type and name.
func (r *Reading) Say(answers map[string]map[string]cty.Value) {
	types := map[string]cty.Value{}
	for of, named := range answers {
		types[of] = cty.ObjectVal(named)
	}
	r.m.data, r.m.evaluated = cty.ObjectVal(types), map[string]cty.Value{}
}

// Unmet says what the postconditions of a block have against self: the stage's own
// words. What cannot be evaluated is not said.
func (r *Reading) Unmet(b Block, self cty.Value) []string {
	beside := map[string]cty.Value{"self": self}
	var said []string
	for _, lifecycle := range b.block.Body.Blocks {
		for _, c := range lifecycle.Body.Blocks {
			if lifecycle.Type != "lifecycle" || c.Type != "postcondition" || c.Body.Attributes["condition"] == nil || c.Body.Attributes["error_message"] == nil {
				continue
			}
			v, err := r.m.evaluate(c.Body.Attributes["condition"].Expr, beside)
			if err != nil || !v.IsKnown() || v.IsNull() || v.Type() != cty.Bool || v.True() {
				continue
			}
			message, err := r.m.evaluate(c.Body.Attributes["error_message"].Expr, beside)
			if err != nil || !message.IsKnown() || message.IsNull() || message.Type() != cty.String {
				message = cty.StringVal("a postcondition of " + b.Name + " does not hold")
			}
			said = append(said, message.AsString())
		}
	}
	return said
}

// Outputs are the outputs that follow from variables and what data sources said.
func (r *Reading) Outputs() map[string]cty.Value {
	all := map[string]cty.Value{}
	for _, b := range r.m.blocks {
		if b.Type != "output" || len(b.Labels) != 1 || b.Body.Attributes["value"] == nil {
			continue
		}
		if v, err := r.m.evaluate(b.Body.Attributes["value"].Expr, nil); err == nil && v.IsWhollyKnown() {
			all[b.Labels[0]] = v
		}
	}
	return all
}
