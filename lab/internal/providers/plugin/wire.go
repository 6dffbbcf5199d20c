package plugin

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/hashicorp/terraform-plugin-go/tfprotov6"
	"github.com/hashicorp/terraform-plugin-go/tftypes"
	"github.com/zclconf/go-cty/cty"
	ctyjson "github.com/zclconf/go-cty/cty/json"
	"github.com/zclconf/go-cty/cty/msgpack"
)

// Problem is an error in the two parts in which Terraform shows it; Detail may be empty.
type Problem struct{ Summary, Detail string }

func (p *Problem) Error() string {
	if p.Detail == "" {
		return p.Summary
	}
	return p.Summary + ": " + p.Detail
}

func diagnostic(err error) *tfprotov6.Diagnostic {
	d := &tfprotov6.Diagnostic{Severity: tfprotov6.DiagnosticSeverityError, Summary: err.Error()}
	var p *Problem
	if errors.As(err, &p) {
		d.Summary, d.Detail = p.Summary, p.Detail
	}
	return d
}

func diagnostics(err error) []*tfprotov6.Diagnostic {
	if err == nil {
		return nil
	}
	return []*tfprotov6.Diagnostic{diagnostic(err)}
}

func decode(from *tfprotov6.DynamicValue, t cty.Type) (cty.Value, error) {
	switch {
	case from == nil:
		return cty.NullVal(t), nil
	case from.MsgPack != nil:
		return msgpack.Unmarshal(from.MsgPack, t)
	default:
		return ctyjson.Unmarshal(from.JSON, t)
	}
}

func encode(v cty.Value, t cty.Type) (*tfprotov6.DynamicValue, error) {
	b, err := msgpack.Marshal(v, t)
	if err != nil {
		return nil, err
	}
	return &tfprotov6.DynamicValue{MsgPack: b}, nil
}

func wirePath(p cty.Path) *tftypes.AttributePath {
	w := tftypes.NewAttributePath()
	for _, step := range p {
		switch s := step.(type) {
		case cty.GetAttrStep:
			w = w.WithAttributeName(s.Name)
		case cty.IndexStep:
			n, _ := s.Key.AsBigFloat().Int64()
			w = w.WithElementKeyInt(int(n))
		}
	}
	return w
}

func (b Block) wire() *tfprotov6.SchemaBlock {
	w := &tfprotov6.SchemaBlock{Attributes: wireAttributes(b.Attributes)}
	for name, n := range b.Blocks {
		modes := map[Mode]tfprotov6.SchemaNestedBlockNestingMode{
			Single: tfprotov6.SchemaNestedBlockNestingModeSingle,
			List:   tfprotov6.SchemaNestedBlockNestingModeList,
			Set:    tfprotov6.SchemaNestedBlockNestingModeSet,
		}
		w.BlockTypes = append(w.BlockTypes, &tfprotov6.SchemaNestedBlock{
			TypeName: name, Block: n.Block.wire(), Nesting: modes[n.Mode], MinItems: n.Min, MaxItems: n.Max,
		})
	}
	slices.SortFunc(w.BlockTypes, func(x, y *tfprotov6.SchemaNestedBlock) int {
		return cmp.Compare(x.TypeName, y.TypeName)
	})
	return w
}

func wireAttributes(attributes map[string]Attribute) []*tfprotov6.SchemaAttribute {
	var all []*tfprotov6.SchemaAttribute
	for name, a := range attributes {
		w := &tfprotov6.SchemaAttribute{
			Name: name, Required: a.Required, Optional: a.Optional, Computed: a.Computed,
			Sensitive: a.Sensitive, WriteOnly: a.WriteOnly, Deprecated: a.Deprecated,
		}
		if a.Nested != nil {
			modes := map[Mode]tfprotov6.SchemaObjectNestingMode{
				Single: tfprotov6.SchemaObjectNestingModeSingle,
				List:   tfprotov6.SchemaObjectNestingModeList,
				Set:    tfprotov6.SchemaObjectNestingModeSet,
				Map:    tfprotov6.SchemaObjectNestingModeMap,
			}
			w.NestedType = &tfprotov6.SchemaObject{Attributes: wireAttributes(a.Nested.Attributes),
				Nesting: modes[a.Nested.Mode]}
		} else {
			w.Type = wireType(a.Type)
		}
		all = append(all, w)
	}
	slices.SortFunc(all, func(x, y *tfprotov6.SchemaAttribute) int { return cmp.Compare(x.Name, y.Name) })
	return all
}

func wireType(t cty.Type) tftypes.Type {
	switch {
	case t == cty.String:
		return tftypes.String
	case t == cty.Number:
		return tftypes.Number
	case t == cty.Bool:
		return tftypes.Bool
	case t == cty.DynamicPseudoType:
		return tftypes.DynamicPseudoType
	case t.IsListType():
		return tftypes.List{ElementType: wireType(t.ElementType())}
	case t.IsSetType():
		return tftypes.Set{ElementType: wireType(t.ElementType())}
	case t.IsMapType():
		return tftypes.Map{ElementType: wireType(t.ElementType())}
	case t.IsObjectType():
		types := map[string]tftypes.Type{}
		for name, x := range t.AttributeTypes() {
			types[name] = wireType(x)
		}
		return tftypes.Object{AttributeTypes: types}
	}
	panic(fmt.Sprintf("schema type %#v is none that a stand-in uses", t))
}
