package config

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"

	"github.com/ephemeral-castle/castle/internal/gate"
)

// blockReader gives stages their gates, preflights and adoptions.
type blockReader struct{ load *loader }

// addGates gives the stage its gates.
func (r *blockReader) addGates(s *Stage) {
	types := r.load.options.Gates
	for _, b := range s.definition.gates {
		i := r.findType(s, b, len(types), func(i int) string { return types[i].Name })
		if i < 0 {
			continue
		}
		merged := b.overriddenBy(s.entry.gates)
		merged.takes, merged.check = types[i].Attributes, types[i].Check
		r.checkArguments(s, merged, "timeout", "stable", "needs")
		s.Gates = append(s.Gates, &Gate{Type: types[i], Label: b.labels[1], Of: s, block: merged})
	}
	r.checkOverrides(s)
}

// add gives the stage its gates, preflights and adoptions.
func (r *blockReader) add(s *Stage) {
	r.addGates(s)
	types := r.load.options.Preflights
	for _, b := range s.definition.preflights {
		i := r.findType(s, b, len(types), func(i int) string { return types[i].Name })
		if i < 0 {
			continue
		}
		own := b.overriddenBy(nil)
		own.takes, own.check = types[i].Attributes, types[i].Check
		r.checkArguments(s, own)
		s.Preflights = append(s.Preflights, &Preflight{Type: types[i], Label: b.labels[1], block: own})
	}
	for _, b := range s.definition.adopts {
		own := b.overriddenBy(nil)
		own.takes = map[string]gate.Attribute{"id": {Type: cty.String, Required: true}}
		r.checkArguments(s, own)
		own.takes = map[string]gate.Attribute{"id": {Type: cty.String}} // null: nothing to adopt
		r.checkAddress(s, own)
		s.Adopts = append(s.Adopts, &Adopt{Address: b.labels[0], Exists: r.exists(s, b.exists), block: own})
	}
}

// exists returns the lookup of an adoption, if it has one.
func (r *blockReader) exists(s *Stage, b *block) *Exists {
	if b == nil {
		return nil
	}
	types := r.load.options.Exists
	i := r.findType(s, b, len(types), func(i int) string { return types[i].Name })
	if i < 0 {
		return nil
	}
	own := b.overriddenBy(nil)
	own.takes, own.check = types[i].Attributes, types[i].Check
	r.checkArguments(s, own, "timeout")
	return &Exists{Type: types[i], block: own}
}

// findType returns the index of the block's type among n, or reports it and returns -1.
func (r *blockReader) findType(s *Stage, b *block, n int, name func(int) string) int {
	names := make([]string, n)
	for i := range names {
		names[i] = name(i)
	}
	i := slices.Index(names, b.labels[0])
	if i < 0 {
		r.load.problem(b.at, b.of(s)+": unknown type "+b.labels[0],
			"castle has no %s of this type%s", b.kind, orStop(DidYouMean(b.labels[0], names)))
	}
	return i
}

// overriddenBy returns a copy of the block, with the arguments of the override of its key.
func (b *block) overriddenBy(overrides []*block) *block {
	merged := *b
	merged.args, merged.places = maps.Clone(b.args), maps.Clone(b.places)
	for _, o := range overrides {
		if o.key() != b.key() {
			continue
		}
		maps.Copy(merged.args, o.args)
		maps.Copy(merged.places, o.places)
		if o.needs != nil {
			merged.needs = o.needs
		}
	}
	return &merged
}

func (r *blockReader) checkOverrides(s *Stage) {
	var keys []string
	for _, b := range s.definition.gates {
		keys = append(keys, b.key())
	}
	for _, o := range s.entry.gates {
		if !slices.Contains(keys, o.key()) {
			r.load.problem(o.at, fmt.Sprintf("stage %s: no gate %s to override", s.Name, o.key()),
				"%s has none of this type and label%s", s.definition.file, orStop(DidYouMean(o.key(), keys)))
		}
	}
}

func (r *blockReader) checkArguments(s *Stage, b *block, common ...string) {
	names := append(slices.Sorted(maps.Keys(b.takes)), common...)
	for _, name := range slices.Sorted(maps.Keys(b.args)) {
		if !slices.Contains(names, name) {
			r.load.problem(b.places[name], b.of(s)+": unknown argument "+name,
				"This type of %s does not take it%s", b.kind, orStop(DidYouMean(name, names)))
			delete(b.args, name)
		}
	}
	for _, name := range names {
		if _, ok := b.args[name]; !ok && b.takes[name].Required {
			r.load.problem(b.at, b.of(s)+": missing argument "+name,
				"%s", strings.TrimSuffix("It is required: "+b.takes[name].Help, ": "))
			b.args[name] = hcl.StaticExpr(cty.DynamicVal, b.at)
		}
	}
}

// checkAddress reports an adoption of a resource that the root module does not have.
// castle does not read child modules.
func (r *blockReader) checkAddress(s *Stage, b *block) {
	address := b.labels[0]
	t, diags := hclsyntax.ParseTraversalAbs([]byte(address), b.at.Filename, hcl.InitialPos)
	if !diags.HasErrors() && t.RootName() == "module" {
		return
	}
	resource := ""
	if !diags.HasErrors() && len(t) > 1 {
		if name, ok := t[1].(hcl.TraverseAttr); ok {
			resource = t.RootName() + "." + name.Name
		}
	}
	switch {
	case resource == "":
		r.load.problem(b.at, b.of(s)+": unsuitable address", "%q is not of the form <type>.<name>.", address)
	case !s.definition.resources[resource]:
		r.load.problem(b.at, b.of(s)+": unknown resource",
			"The module %s has no resource %s%s", s.Source, resource,
			orStop(DidYouMean(resource, slices.Collect(maps.Keys(s.definition.resources)))))
	}
}
