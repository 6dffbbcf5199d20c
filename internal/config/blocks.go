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

// addGates gives the stage its gates.
func (l *loader) addGates(s *Stage) {
	for _, b := range s.definition.gates {
		i := slices.IndexFunc(l.Gates, func(t gate.Type) bool { return t.Name == b.labels[0] })
		if i < 0 {
			var names []string
			for _, t := range l.Gates {
				names = append(names, t.Name)
			}
			l.unknownType(s, b, names)
			continue
		}
		t := l.Gates[i]
		merged := b.overriddenBy(s.entry.gates)
		merged.takes, merged.check = t.Attributes, t.Check
		l.checkArguments(s, merged, "timeout", "stable", "needs")
		s.Gates = append(s.Gates, &Gate{Type: t, Label: b.labels[1], Of: s, block: merged})
	}
	l.checkOverrides(s)
}

// addBlocks gives the stage its gates, preflights and adoptions.
func (l *loader) addBlocks(s *Stage) {
	l.addGates(s)
	for _, b := range s.definition.preflights {
		i := slices.IndexFunc(l.Options.Preflights, func(t gate.PreflightType) bool { return t.Name == b.labels[0] })
		if i < 0 {
			var names []string
			for _, t := range l.Options.Preflights {
				names = append(names, t.Name)
			}
			l.unknownType(s, b, names)
			continue
		}
		t := l.Options.Preflights[i]
		own := b.overriddenBy(nil)
		own.takes, own.check = t.Attributes, t.Check
		l.checkArguments(s, own)
		s.Preflights = append(s.Preflights, &Preflight{Type: t, Label: b.labels[1], block: own})
	}
	for _, b := range s.definition.adopts {
		own := b.overriddenBy(nil)
		own.takes = map[string]gate.Attribute{"id": {Type: cty.String, Required: true}}
		l.checkArguments(s, own)
		own.takes = map[string]gate.Attribute{"id": {Type: cty.String}} // null: nothing to adopt
		l.checkAddress(s, own)
		s.Adopts = append(s.Adopts, &Adopt{Address: b.labels[0], Exists: l.exists(s, b.exists), block: own})
	}
}

// exists gives an adoption its question, if it has one.
func (l *loader) exists(s *Stage, b *block) *Exists {
	if b == nil {
		return nil
	}
	types := l.Options.Exists
	i := slices.IndexFunc(types, func(t gate.ExistsType) bool { return t.Name == b.labels[0] })
	if i < 0 {
		var names []string
		for _, t := range types {
			names = append(names, t.Name)
		}
		l.unknownType(s, b, names)
		return nil
	}
	own := b.overriddenBy(nil)
	own.takes, own.check = types[i].Attributes, types[i].Check
	l.checkArguments(s, own, "timeout")
	return &Exists{Type: types[i], block: own}
}

func (l *loader) unknownType(s *Stage, b *block, names []string) {
	l.report(problem(b.at, fmt.Sprintf("stage %s: %s: unknown type %s", s.Name, b.name(), b.labels[0]),
		"castle has no %s of this type%s", b.kind, orStop(DidYouMean(b.labels[0], names))))
}

// overriddenBy returns a copy of the block with the arguments of the override of the same key.
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

func (l *loader) checkOverrides(s *Stage) {
	var keys []string
	for _, b := range s.definition.gates {
		keys = append(keys, b.key())
	}
	for _, o := range s.entry.gates {
		if !slices.Contains(keys, o.key()) {
			l.report(problem(o.at, fmt.Sprintf("stage %s: no gate %s to override", s.Name, o.key()),
				"%s has none of this type and label%s", s.definition.file, orStop(DidYouMean(o.key(), keys))))
		}
	}
}

func (l *loader) checkArguments(s *Stage, b *block, common ...string) {
	names := append(slices.Sorted(maps.Keys(b.takes)), common...)
	for _, name := range slices.Sorted(maps.Keys(b.args)) {
		if !slices.Contains(names, name) {
			l.report(problem(b.places[name], fmt.Sprintf("stage %s: %s: unknown argument %s", s.Name, b.name(), name),
				"This type of %s does not take it%s", b.kind, orStop(DidYouMean(name, names))))
			delete(b.args, name)
		}
	}
	for _, name := range names {
		if _, ok := b.args[name]; !ok && b.takes[name].Required {
			l.report(problem(b.at, fmt.Sprintf("stage %s: %s: missing argument %s", s.Name, b.name(), name),
				"%s", strings.TrimSuffix("It is required: "+b.takes[name].Help, ": ")))
			b.args[name] = hcl.StaticExpr(cty.DynamicVal, b.at)
		}
	}
}

// checkAddress reports an adoption of what the root module does not have.
// Inside child modules castle does not look.
func (l *loader) checkAddress(s *Stage, b *block) {
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
		l.report(problem(b.at, fmt.Sprintf("stage %s: %s: unsuitable address", s.Name, b.name()), "%q is not of the form <type>.<name>.", address))
	case !s.definition.resources[resource]:
		l.report(problem(b.at, fmt.Sprintf("stage %s: %s: unknown resource", s.Name, b.name()),
			"The module %s has no resource %s%s", s.Source, resource, orStop(DidYouMean(resource, slices.Collect(maps.Keys(s.definition.resources))))))
	}
}
