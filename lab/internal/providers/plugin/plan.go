package plugin

import (
	"github.com/zclconf/go-cty/cty"
)

// Plan is a planned change that a resource's Plan function may still alter.
type Plan struct {
	Change  Change   // Planned may be changed
	Forced  []string // names of attributes whose change needs a new object, beside those marked Replace
	Changed bool     // whether Planned differed from Prior before the Plan function
}

// SetUnknown makes planned values unknown: they are known after apply.
func (p *Plan) SetUnknown(names ...string) {
	for _, name := range names {
		p.Change.Planned[name] = cty.UnknownVal(p.Change.Planned[name].Type())
	}
}

// Differs reports whether the planned value of any of the names differs from the prior one.
func (p *Plan) Differs(names ...string) bool {
	for _, name := range names {
		if p.Change.Prior == nil || !p.Change.Planned[name].RawEquals(p.Change.Prior[name]) {
			return true
		}
	}
	return false
}

// visit maps each attribute of a value; prior and config are the same place in
// the state and the configuration, where those have it.
type visit func(a Attribute, v, prior, config cty.Value) cty.Value

// transform applies f to every attribute, then descends into the blocks of the configuration.
func (b Block) transform(v, prior, config cty.Value, f visit) cty.Value {
	if v.IsNull() || !v.IsKnown() {
		return v
	}
	all := v.AsValueMap()
	for name, a := range b.Attributes {
		p, c := member(prior, name), member(config, name)
		all[name] = f(a, all[name], p, c)
		if a.Nested != nil && c != cty.NilVal && !c.IsNull() {
			all[name] = a.Nested.Mode.transform(Block{Attributes: a.Nested.Attributes}, all[name], p, c, f)
		}
	}
	for name, n := range b.Blocks {
		all[name] = n.Mode.transform(n.Block, all[name], member(prior, name), member(config, name), f)
	}
	return cty.ObjectVal(all)
}

// transform descends into the elements of a list or map. A set's elements have no index to compare,
// so they stay unchanged.
func (m Mode) transform(b Block, v, prior, config cty.Value, f visit) cty.Value {
	if v.IsNull() || !v.IsKnown() || m == Set {
		return v
	}
	if m == Single {
		return b.transform(v, prior, config, f)
	}
	if v.LengthInt() == 0 {
		return v
	}
	if m == Map {
		all := v.AsValueMap()
		for key, x := range all {
			all[key] = b.transform(x, element(prior, cty.StringVal(key)),
				element(config, cty.StringVal(key)), f)
		}
		return cty.MapVal(all)
	}
	all := v.AsValueSlice()
	for i, x := range all {
		at := cty.NumberIntVal(int64(i))
		all[i] = b.transform(x, element(prior, at), element(config, at), f)
	}
	return cty.ListVal(all)
}

func member(object cty.Value, name string) cty.Value {
	if object == cty.NilVal || object.IsNull() || !object.IsKnown() {
		return cty.NilVal
	}
	return object.GetAttr(name)
}

func element(collection, key cty.Value) cty.Value {
	if collection == cty.NilVal || collection.IsNull() || !collection.IsKnown() ||
		!collection.HasIndex(key).True() {
		return cty.NilVal
	}
	return collection.Index(key)
}

func unset(config cty.Value) bool { return config == cty.NilVal || config.IsNull() }

func withDefault(a Attribute, v, _, config cty.Value) cty.Value {
	switch {
	case a.WriteOnly:
		return cty.NullVal(a.valueType())
	case a.Default != cty.NilVal && unset(config):
		return a.Default
	}
	return v
}

func withUnknown(a Attribute, v, prior, config cty.Value) cty.Value {
	if !a.Computed || a.Default != cty.NilVal || !unset(config) {
		return v
	}
	if a.Keep && prior != cty.NilVal && !prior.IsNull() {
		return prior
	}
	return cty.UnknownVal(a.valueType())
}

// plan is the planned value for a proposed one, by the rules of this package alone.
func (b Block) plan(prior, proposed, config cty.Value) (planned cty.Value, changed bool) {
	planned = b.transform(proposed, prior, config, withDefault)
	if planned.RawEquals(prior) {
		return planned, false
	}
	return b.transform(planned, prior, config, withUnknown), true
}

// replaced returns the paths of those attributes marked Replace that differ.
func (b Block) replaced(prior, planned cty.Value, at cty.Path) []cty.Path {
	if prior == cty.NilVal || prior.IsNull() || planned.IsNull() || !planned.IsKnown() {
		return nil
	}
	var paths []cty.Path
	for name, a := range b.Attributes {
		if a.Replace && !planned.GetAttr(name).RawEquals(prior.GetAttr(name)) {
			paths = append(paths, at.Copy().GetAttr(name))
		}
	}
	for name, n := range b.Blocks {
		x := planned.GetAttr(name)
		if n.Mode != List || !x.IsKnown() {
			continue
		}
		for i, e := range x.AsValueSlice() {
			key := cty.NumberIntVal(int64(i))
			paths = append(paths, n.Block.replaced(element(prior.GetAttr(name), key), e,
				at.Copy().GetAttr(name).Index(key))...)
		}
	}
	return paths
}
