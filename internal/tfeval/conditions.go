package tfeval

import (
	"cmp"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/siderolabs/gen/xslices"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/convert"
)

// Failure is a `validation` block whose condition is certainly false.
type Failure struct {
	Variable string    // that the block belongs to
	Message  string    // the module's own
	At       hcl.Range // the block
	// Reads are the values that the condition relates, such as "nodes.vm_id" for an attribute of each node,
	// sorted. They identify the subject of the validation.
	Reads []string
	// Collection is the variable whose Elements fail the condition, by key or position;
	// empty if it is not a matter of single elements. Others are those without which
	// the Elements would be valid, as in "two nodes have one address".
	Collection       string
	Elements, Others []string
	// Allowed are the values that the condition allows, where it lists them: contains(["a", "b"], var.x).
	Allowed []string
}

// FailedValidations evaluates the validation blocks of all variables.
func (m *Module) FailedValidations() []Failure {
	var all []Failure
	for _, variable := range m.Instances("variable", "") {
		for _, b := range variable.block.Body.Blocks {
			condition := b.Body.Attributes["condition"]
			if b.Type != "validation" || condition == nil || !m.fails(condition.Expr, nil) {
				continue
			}
			f := Failure{
				Variable: variable.Name, At: b.DefRange(), Reads: reads(condition.Expr),
				Message: m.message(b, "The condition of its validation is not met.", nil),
			}
			f.Allowed = allowed(condition.Expr)
			blame(m, &f, condition.Expr)
			all = append(all, f)
		}
	}
	return all
}

// allowed returns the values of the only list in a condition that it looks something up in.
func allowed(condition hcl.Expression) []string {
	var values []string
	calls := 0
	visit(condition, func(n hclsyntax.Node) {
		call, ok := n.(*hclsyntax.FunctionCallExpr)
		if !ok || call.Name != "contains" || len(call.Args) != 2 {
			return
		}
		calls++
		v, _ := call.Args[0].Value(nil) // a list that depends on anything is unknown
		for _, element := range Elements(v) {
			values = append(values, Printed(element))
		}
	})
	if calls != 1 {
		return nil
	}
	return values
}

// FailedPostconditions returns the messages of a block's postconditions that self does not meet.
func (m *Module) FailedPostconditions(b Block, self cty.Value) (all []string) {
	for _, lifecycle := range b.block.Body.Blocks { // the only block with postconditions
		all = append(all, m.failed(b, lifecycle.Body, "postcondition", map[string]cty.Value{"self": self})...)
	}
	return all
}

// FailedPreconditions returns the messages of the outputs' preconditions that do not hold.
func (m *Module) FailedPreconditions() []string {
	return xslices.FlatMap(m.Instances("output", ""), func(b Block) []string {
		return m.failed(b, b.block.Body, "precondition", map[string]cty.Value{})
	})
}

// failed returns the messages of the conditions of a kind, in the body, that do not hold for b.
func (m *Module) failed(b Block, in *hclsyntax.Body, kind string, extra map[string]cty.Value) (all []string) {
	for _, c := range in.Blocks {
		condition := c.Body.Attributes["condition"]
		if c.Type == kind && condition != nil && m.fails(condition.Expr, extra) {
			all = append(all, m.message(c, "a "+kind+" of "+b.Name+" does not hold", extra))
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

// message returns the error_message of a block. It omits that of a validation (extra is nil) with a
// sensitive variable in it.
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
	v, _ := m.Evaluate(attr.Expr, extra) // unknown after an error
	return cmp.Or(Text(v), otherwise)
}

// blame finds the elements that fail the condition alone, or else those that fail it beside an earlier one.
func blame(m *Module, f *Failure, condition hcl.Expression) {
	own := func(read string) int { // whose elements come first
		if root, _, _ := strings.Cut(read, "."); root == f.Variable {
			return 0
		}
		return 1
	}
	for _, read := range slices.SortedStableFunc(slices.Values(f.Reads), func(a, b string) int {
		return cmp.Compare(own(a), own(b))
	}) {
		name, _, _ := strings.Cut(read, ".")
		keys, of := elements(m.variables[name])
		if of == nil || m.With(name, of()).fails(condition, nil) {
			continue
		}
		f.Collection = name
		f.Elements = append(f.Elements, xslices.Filter(keys, func(key string) bool {
			return m.With(name, of(key)).fails(condition, nil)
		})...)
		if len(f.Elements) > 0 {
			return
		}
		for i, key := range keys {
			for _, other := range keys[:i] {
				if m.With(name, of(other, key)).fails(condition, nil) {
					f.Elements, f.Others = append(f.Elements, key), append(f.Others, other)
					break
				}
			}
		}
		return
	}
}

// elements returns the keys of a map or list, and a function that selects some; nil for other values.
func elements(v cty.Value) (keys []string, of func(keys ...string) cty.Value) {
	if !known(v) || !v.IsWhollyKnown() || !v.Type().IsMapType() && !v.Type().IsListType() {
		return nil, nil
	}
	all := map[string]cty.Value{}
	for it := v.ElementIterator(); it.Next(); {
		key, value := it.Element()
		keys = append(keys, Printed(key))
		all[Printed(key)] = value
	}
	return keys, func(chosen ...string) cty.Value {
		some, list := map[string]cty.Value{}, []cty.Value{}
		for _, k := range chosen {
			some[k], list = all[k], append(list, all[k])
		}
		switch isMap := v.Type().IsMapType(); {
		case len(list) == 0:
			return zero(v.Type())
		case isMap:
			return cty.MapVal(some)
		}
		return cty.ListVal(list)
	}
}

// reads lists the variables that an expression relates, with the attributes that it
// uses. The attributes of a collection's elements stand below the collection.
func reads(expr hcl.Expression) []string {
	loops, iterated := map[string]string{}, map[hclsyntax.Node]bool{}
	var all []string
	visit(expr, func(n hclsyntax.Node) { // a loop before what is in it
		if loop, ok := n.(*hclsyntax.ForExpr); ok {
			over, ok := loop.CollExpr.(*hclsyntax.ScopeTraversalExpr)
			if ok && over.Traversal.RootName() == "var" {
				loops[loop.ValVar], iterated[over] = second(over.Traversal), true
			}
		}
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
		if of, ok := loops[t.Traversal.RootName()]; ok {
			all = append(all, strings.Join(append([]string{of}, steps...), "."))
		} else if t.Traversal.RootName() == "var" {
			all = append(all, strings.Join(steps, "."))
		}
	})
	slices.Sort(all)
	return slices.Compact(all)
}
