// Package module reads what the files of a Terraform root module declare: variables with their types and
// defaults, and outputs. A value is settled by the rules of Terraform, to find mistakes early.
package module

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/ext/typeexpr"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/hashicorp/terraform-config-inspect/tfconfig"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/convert"

	"github.com/ephemeral-castle/castle/internal/syntax"
)

// Variable is an input variable that a root module declares.
type Variable struct {
	Name        string
	Description string
	Type        cty.Type // without the marks of optional attributes
	Sensitive   bool
	Required    bool // it has no default

	constraint cty.Type           // with these marks
	defaults   *typeexpr.Defaults // of optional attributes; may be nil
	fallback   cty.Value          // the default, converted; cty.NilVal where Required
	literal    bool               // a text (--var, TF_VAR_) is the value, not an expression
	nullable   bool               // null is a value, and not the default
	declared   hcl.Range
}

// Output is an output value that a root module declares.
type Output struct {
	Name        string `json:"name"`
	Description string `json:"description"`
	Sensitive   bool   `json:"sensitive"`

	declared hcl.Range
}

// Read adds the declarations of a file to variables and outputs. inspected is the module as
// terraform-config-inspect read it, which reports what it cannot read. A call of a module outside of the
// folder is a problem: castle copies the folder alone for Terraform.
func Read(f *hcl.File, inspected *tfconfig.Module, variables map[string]Variable,
	outputs map[string]Output) (all hcl.Diagnostics) {
	content, _, _ := f.Body.PartialContent(&hcl.BodySchema{Blocks: []hcl.BlockHeaderSchema{
		{Type: "variable", LabelNames: []string{"name"}},
		{Type: "output", LabelNames: []string{"name"}},
		{Type: "module", LabelNames: []string{"name"}},
	}})
	for _, b := range content.Blocks {
		name := b.Labels[0]
		if b.Type == "module" {
			call := inspected.ModuleCalls[name]
			if call != nil && strings.HasPrefix(call.Source, ".") && !filepath.IsLocal(call.Source) {
				all = append(all, syntax.Problem(b.DefRange,
					"module "+name+": outside of the stage's folder", "Terraform runs in a copy "+
						"of the folder, which %s leads out of. Move the module into the folder, or call it "+
						"from Git or a registry.", call.Source))
			}
			continue
		}
		if b.Type == "output" {
			o := inspected.Outputs[name]
			outputs[name] = Output{name, o.Description, o.Sensitive, b.DefRange}
			continue
		}
		v, diags := readVariable(b, inspected.Variables[name])
		variables[name], all = v, append(all, diags...)
	}
	return all
}

func readVariable(b *hcl.Block, inspected *tfconfig.Variable) (v Variable, all hcl.Diagnostics) {
	v = Variable{Name: inspected.Name, Description: inspected.Description, Sensitive: inspected.Sensitive,
		Required: true, constraint: cty.DynamicPseudoType, literal: true, nullable: true,
		declared: b.DefRange}
	content, _, all := b.Body.PartialContent(&hcl.BodySchema{Attributes: []hcl.AttributeSchema{
		{Name: "type"}, {Name: "default"}, {Name: "nullable"},
	}})
	if attr, ok := content.Attributes["nullable"]; ok {
		x, _ := attr.Expr.Value(nil) // Terraform reports an unsuitable one; here it counts as absent
		x, err := convert.Convert(x, cty.Bool)
		v.nullable = err != nil || !x.IsKnown() || x.IsNull() || x.True()
	}
	if attr, ok := content.Attributes["type"]; ok {
		var diags hcl.Diagnostics
		v.constraint, v.defaults, diags = readType(attr.Expr)
		v.literal, all = v.constraint.IsPrimitiveType(), append(all, diags...)
	}
	v.Type = v.constraint.WithoutOptionalAttributesDeep()
	if attr, ok := content.Attributes["default"]; ok {
		x, diags := attr.Expr.Value(nil)
		all = append(all, syntax.Plain(diags)...)
		fallback, err := v.convert(x)
		if err != nil && !diags.HasErrors() {
			all = append(all, syntax.Problem(attr.Expr.Range(), "variable "+v.Name+": unsuitable default",
				"%s.", err))
		}
		v.Required, v.fallback = false, fallback
		if err != nil || diags.HasErrors() {
			v.fallback = cty.UnknownVal(v.Type)
		}
	}
	return v, all
}

// readType reads a type, with the defaults of optional attributes.
func readType(expr hcl.Expression) (cty.Type, *typeexpr.Defaults, hcl.Diagnostics) {
	switch hcl.ExprAsKeyword(expr) { // Terraform's old words for collections of anything
	case "list":
		return cty.List(cty.DynamicPseudoType), nil, nil
	case "map":
		return cty.Map(cty.DynamicPseudoType), nil, nil
	}
	ty, defaults, diags := typeexpr.TypeConstraintWithDefaults(expr)
	if diags.HasErrors() {
		return cty.DynamicPseudoType, nil, diags
	}
	return ty, defaults, diags
}

// Constraint is the type with the marks of optional attributes.
func (v Variable) Constraint() cty.Type { return v.constraint }

// Default returns the variable's default, and false where it has none.
func (v Variable) Default() (cty.Value, bool) { return v.fallback, !v.Required }

// Declared is where the module declares the variable.
func (v Variable) Declared() hcl.Range { return v.declared }

// Declared is where the module declares the output.
func (o Output) Declared() hcl.Range { return o.declared }

// SettleText returns the value of the variable where it is set to a text, as by --var.
func (v Variable) SettleText(text string) (cty.Value, error) {
	if v.literal {
		return v.Settle(cty.StringVal(text))
	}
	x, err := parse(text)
	if err != nil {
		return cty.NilVal, v.mismatch(err)
	}
	return v.Settle(x)
}

// Settle returns the value of the variable where it is set to x.
func (v Variable) Settle(x cty.Value) (cty.Value, error) {
	if x.IsNull() && !v.nullable {
		if v.Required {
			return cty.NilVal, v.mismatch(errors.New("null is not allowed"))
		}
		return v.fallback, nil
	}
	x, err := v.convert(x)
	return x, v.mismatch(err)
}

// mismatch adds the variable's type and place to an error.
func (v Variable) mismatch(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w. The variable is %s, declared at %s", err, typeexpr.TypeString(v.Type),
		syntax.Place(v.declared))
}

func (v Variable) convert(x cty.Value) (cty.Value, error) {
	if v.defaults != nil {
		x = v.defaults.Apply(x)
	}
	return syntax.Convert(x, v.constraint)
}

// parse evaluates the text of an expression.
func parse(text string) (cty.Value, error) {
	expr, diags := hclsyntax.ParseExpression([]byte(text), "", hcl.InitialPos)
	v := cty.NilVal
	if !diags.HasErrors() {
		v, diags = expr.Value(nil)
	}
	if diags.HasErrors() {
		return cty.NilVal, fmt.Errorf("its text is read as an expression: %s: %s", diags[0].Summary,
			strings.TrimSuffix(diags[0].Detail, "."))
	}
	return v, nil
}
