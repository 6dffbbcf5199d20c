package syntax

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/convert"
)

// Misfit is a part of a value that does not suit the type of its variable.
type Misfit struct {
	At     hcl.Range
	Part   string // "worker-01.vm_id"; "" is the whole value
	Text   string // what is wrong with it: "a number is required"
	Reason string // sentences, with the way out
}

// Misfits returns the parts of an expression that do not suit a type, in the order of the file: values of
// another type, and attributes that are missing or unknown. Terraform drops unknown ones without a word, and
// names no line for the others. A part that refers to something is left out. At is the place of the whole.
func Misfits(expr hcl.Expression, at hcl.Range, ty cty.Type) []Misfit {
	all := part{"", at, expr}.misfits(ty)
	slices.SortStableFunc(all, func(a, b Misfit) int { return a.At.Start.Byte - b.At.Start.Byte })
	return all
}

// part is an element of an expression, by its path.
type part struct {
	path string
	at   hcl.Range
	expr hcl.Expression
}

// name is the key or the position of the part.
func (p part) name() string { return p.path[strings.LastIndexByte(p.path, '.')+1:] }

// parts are the elements of an object or list whose keys are constants.
func (p part) parts() (all []part) {
	add := func(name string, at hcl.Range, expr hcl.Expression) {
		all = append(all, part{strings.TrimPrefix(p.path+"."+name, "."), at, expr})
	}
	pairs, diags := hcl.ExprMap(p.expr)
	for _, kv := range pairs {
		key, _ := kv.Key.Value(nil) // an error: it is unknown
		if key.Type() == cty.String && key.IsKnown() && !key.IsNull() {
			add(key.AsString(), kv.Key.Range(), kv.Value)
		}
	}
	if diags.HasErrors() {
		elements, _ := hcl.ExprList(p.expr) // an error: it has no elements
		for i, e := range elements {
			add(strconv.Itoa(i), e.Range(), e)
		}
	}
	return all
}

func (p part) misfits(ty cty.Type) (all []Misfit) {
	v, diags := p.expr.Value(nil)
	refuse := func(text, reason string) []Misfit { return []Misfit{{p.at, p.path, text, reason}} }
	is := v.Type()
	switch {
	case diags.HasErrors() || !v.IsKnown() || v.IsNull() || ty == cty.DynamicPseudoType:
	case (ty.IsObjectType() || ty.IsMapType()) && !is.IsObjectType() && !is.IsMapType():
		return refuse("a map is required", "Write { name = value }.")
	case (ty.IsListType() || ty.IsSetType()) && !is.IsTupleType() && !is.IsListType():
		return refuse("a list is required", "Write it in [ and ].")
	case ty.IsObjectType():
		return p.attributes(ty)
	case ty.IsCollectionType():
		for _, element := range p.parts() {
			all = append(all, element.misfits(ty.ElementType())...)
		}
	case ty.IsPrimitiveType():
		if _, err := convert.Convert(v, ty); err != nil {
			words := map[cty.Type]string{
				cty.String: "a text", cty.Number: "a number", cty.Bool: "true or false"}
			return refuse(words[ty]+" is required", fmt.Sprintf("This is no %s.", ty.FriendlyName()))
		}
	}
	return all
}

// attributes returns the misfits of an object. A misspelled attribute stands for one that is missing.
func (p part) attributes(ty cty.Type) (all []Misfit) {
	has := map[string]bool{}
	for _, a := range p.parts() {
		has[a.name()] = true
	}
	names := slices.Sorted(maps.Keys(ty.AttributeTypes()))
	absent := slices.DeleteFunc(slices.Clone(names), func(name string) bool { return has[name] })
	for _, a := range p.parts() {
		if ty.HasAttribute(a.name()) {
			all = append(all, a.misfits(ty.AttributeType(a.name()))...)
			continue
		}
		reason := fmt.Sprintf("The attributes are %s.", strings.Join(names, ", "))
		if near := Nearest(a.name(), absent); near != "" {
			has[near] = true
			reason = fmt.Sprintf("Did you mean %q? ", near) + reason
		}
		all = append(all, Misfit{a.at, a.path, "no such attribute", reason})
	}
	absent = slices.DeleteFunc(absent, func(name string) bool {
		return has[name] || ty.AttributeOptional(name)
	})
	if len(absent) > 0 {
		all = append(all, Misfit{p.at, p.path, "lacks " + strings.Join(absent, ", "), "This is required."})
	}
	return all
}

// Convert converts v; its error names the part of v that failed.
func Convert(v cty.Value, ty cty.Type) (cty.Value, error) {
	converted, err := convert.Convert(typed(v, ty), ty)
	if p, is := errors.AsType[cty.PathError](err); is && len(p.Path) > 0 {
		return cty.NilVal, fmt.Errorf("%s: %w", renderPath(p.Path), err)
	}
	if err != nil {
		return cty.NilVal, err
	}
	return converted, nil
}

// typed gives the unknown attributes of an object the type of a map's elements: one makes a map unknown.
func typed(v cty.Value, ty cty.Type) cty.Value {
	if !ty.IsMapType() || v.IsMarked() || !v.IsKnown() || v.IsNull() || !v.Type().IsObjectType() ||
		ty.ElementType() == cty.DynamicPseudoType {
		return v
	}
	attributes := v.AsValueMap()
	for name, one := range attributes {
		if !one.IsMarked() && !one.IsKnown() && one.Type() == cty.DynamicPseudoType {
			attributes[name] = cty.UnknownVal(ty.ElementType())
		}
	}
	if attributes == nil {
		return v
	}
	return cty.ObjectVal(attributes)
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
