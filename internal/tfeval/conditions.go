package tfeval

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/convert"
)

// Failure is a `validation` block whose condition is certainly false.
type Failure struct {
	Variable string    // that the block belongs to
	Message  string    // the module's own
	At       hcl.Range // the block
	// Reads are the values that the condition relates, such as "nodes.vm_id" for an
	// attribute of each node, sorted. They say what the validation is about.
	Reads []string
	// Collection is the variable whose Elements fail the condition, by key or position;
	// empty if it is not a matter of single elements. Others are those without which
	// the Elements would be valid, as in "two nodes have one address".
	Collection       string
	Elements, Others []string
}

// FailedValidations evaluates the validation blocks of all variables.
func (m *Module) FailedValidations() []Failure {
	var all []Failure
	for _, variable := range m.Blocks {
		if variable.Type != "variable" || len(variable.Labels) != 1 {
			continue
		}
		for _, b := range variable.Body.Blocks {
			condition := b.Body.Attributes["condition"]
			if b.Type != "validation" || condition == nil || !m.fails(condition.Expr, nil) {
				continue
			}
			f := Failure{
				Variable: variable.Labels[0], At: b.DefRange(), Reads: reads(condition.Expr),
				Message: m.message(b, "The condition of its validation is not met.", nil),
			}
			m.blame(&f, condition.Expr)
			all = append(all, f)
		}
	}
	return all
}

// FailedPostconditions returns the messages of a block's postconditions that self does not meet.
func (m *Module) FailedPostconditions(b Block, self cty.Value) []string {
	extra := map[string]cty.Value{"self": self}
	var all []string
	for _, lifecycle := range b.block.Body.Blocks { // the only block with postconditions
		for _, c := range lifecycle.Body.Blocks {
			condition := c.Body.Attributes["condition"]
			if c.Type == "postcondition" && condition != nil && m.fails(condition.Expr, extra) {
				all = append(all, m.message(c, "a postcondition of "+b.Name+" does not hold", extra))
			}
		}
	}
	return all
}

// fails reports whether a condition is certainly false.
func (m *Module) fails(condition hcl.Expression, extra map[string]cty.Value) bool {
	v, err := m.Evaluate(condition, extra)
	if err == nil {
		v, err = convert.Convert(v, cty.Bool)
	}
	return err == nil && known(v) && v.False()
}

// message is the error_message of a block. That of a validation (extra is nil) is not
// shown if it has a sensitive variable in it.
func (m *Module) message(b *hclsyntax.Block, otherwise string, extra map[string]cty.Value) string {
	attr := b.Body.Attributes["error_message"]
	if attr == nil {
		return otherwise
	}
	for _, t := range attr.Expr.Variables() {
		if extra == nil && (t.RootName() != "var" || m.stage.Variables[second(t)].Sensitive) {
			return otherwise
		}
	}
	v, err := m.Evaluate(attr.Expr, extra)
	if err != nil || Text(v) == "" {
		return otherwise
	}
	return Text(v)
}

// blame finds the elements of a collection that fail the condition by themselves, or
// else each that fails it together with one before it.
func (m *Module) blame(f *Failure, condition hcl.Expression) {
	for _, read := range f.Reads {
		name, _, _ := strings.Cut(read, ".")
		parts := partsOf(m.variables[name])
		if parts == nil || m.With(name, parts.of()).fails(condition, nil) {
			continue
		}
		f.Collection = name
		for _, key := range parts.keys {
			if m.With(name, parts.of(key)).fails(condition, nil) {
				f.Elements = append(f.Elements, key)
			}
		}
		if len(f.Elements) > 0 {
			return
		}
		for i, key := range parts.keys {
			for _, other := range parts.keys[:i] {
				if m.With(name, parts.of(other, key)).fails(condition, nil) {
					f.Elements, f.Others = append(f.Elements, key), append(f.Others, other)
					break
				}
			}
		}
		return
	}
}

// parts are the elements of a map or a list, of which smaller ones can be made.
type parts struct {
	keys []string
	of   func(keys ...string) cty.Value
}

func partsOf(v cty.Value) *parts {
	switch {
	case !known(v) || !v.IsWhollyKnown():
		return nil
	case v.Type().IsMapType():
		all := v.AsValueMap()
		return &parts{slices.Sorted(maps.Keys(all)), func(keys ...string) cty.Value {
			some := map[string]cty.Value{}
			for _, k := range keys {
				some[k] = all[k]
			}
			if len(some) == 0 {
				return cty.MapValEmpty(v.Type().ElementType())
			}
			return cty.MapVal(some)
		}}
	case v.Type().IsListType():
		all, keys := v.AsValueSlice(), []string{}
		for i := range all {
			keys = append(keys, strconv.Itoa(i))
		}
		return &parts{keys, func(chosen ...string) cty.Value {
			var some []cty.Value
			for _, k := range chosen {
				some = append(some, all[slices.Index(keys, k)])
			}
			if len(some) == 0 {
				return cty.ListValEmpty(v.Type().ElementType())
			}
			return cty.ListVal(some)
		}}
	}
	return nil
}

// reads lists the variables that an expression relates, with the attributes that it
// uses. The attributes of a collection's elements stand below the collection.
func reads(expr hcl.Expression) []string {
	elements, iterated := map[string]string{}, map[hclsyntax.Node]bool{}
	var all []string
	visit(expr, func(n hclsyntax.Node) {
		if loop, ok := n.(*hclsyntax.ForExpr); ok {
			over, ok := loop.CollExpr.(*hclsyntax.ScopeTraversalExpr)
			if ok && over.Traversal.RootName() == "var" {
				elements[loop.ValVar], iterated[over] = second(over.Traversal), true
			}
		}
	})
	visit(expr, func(n hclsyntax.Node) {
		t, ok := n.(*hclsyntax.ScopeTraversalExpr)
		if !ok || iterated[t] {
			return
		}
		steps := []string{}
		for _, step := range t.Traversal[1:] {
			if attr, ok := step.(hcl.TraverseAttr); ok {
				steps = append(steps, attr.Name)
			}
		}
		if of, ok := elements[t.Traversal.RootName()]; ok {
			all = append(all, strings.Join(append([]string{of}, steps...), "."))
		} else if t.Traversal.RootName() == "var" {
			all = append(all, strings.Join(steps, "."))
		}
	})
	slices.Sort(all)
	return slices.Compact(all)
}
