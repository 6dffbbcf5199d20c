package config

import (
	"errors"
	"fmt"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/ext/typeexpr"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/convert"
)

// constraint is a variable's type with the defaults of its optional attributes.
type constraint struct {
	ty       cty.Type
	defaults *typeexpr.Defaults
}

func readConstraint(expr hcl.Expression) (constraint, hcl.Diagnostics) {
	switch hcl.ExprAsKeyword(expr) { // Terraform's old words for collections of anything
	case "list":
		return constraint{ty: cty.List(cty.DynamicPseudoType)}, nil
	case "map":
		return constraint{ty: cty.Map(cty.DynamicPseudoType)}, nil
	}
	ty, defaults, diags := typeexpr.TypeConstraintWithDefaults(expr)
	if diags.HasErrors() {
		ty, defaults = cty.DynamicPseudoType, nil
	}
	return constraint{ty: ty, defaults: defaults}, diags
}

func (c constraint) convert(v cty.Value) (cty.Value, error) {
	if c.defaults != nil && !v.IsNull() {
		v = c.defaults.Apply(v)
	}
	return convertTo(v, c.ty)
}

// convertTo converts v; its error names the part of v that failed.
func convertTo(v cty.Value, ty cty.Type) (cty.Value, error) {
	converted, err := convert.Convert(v, ty)
	if err == nil {
		return converted, nil
	}
	var p cty.PathError
	if errors.As(err, &p) && len(p.Path) > 0 {
		return cty.NilVal, fmt.Errorf("%s: %w", renderPath(p.Path), err)
	}
	return cty.NilVal, err
}

func renderPath(p cty.Path) string {
	var b strings.Builder
	for _, step := range p {
		switch s := step.(type) {
		case cty.GetAttrStep:
			b.WriteString("." + s.Name)
		case cty.IndexStep:
			switch s.Key.Type() {
			case cty.String:
				fmt.Fprintf(&b, "[%q]", s.Key.AsString())
			case cty.Number:
				b.WriteString("[" + s.Key.AsBigFloat().Text('f', -1) + "]")
			}
		}
	}
	return strings.TrimPrefix(b.String(), ".")
}

// String renders the type as Terraform writes it.
func (c constraint) String() string { return typeexpr.TypeString(c.ty.WithoutOptionalAttributesDeep()) }
