package config

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/siderolabs/gen/xslices"
	"github.com/zclconf/go-cty/cty"

	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/survivor"
	"github.com/ephemeral-castle/castle/internal/syntax"
)

// blockReader gives stages their gates, preflights and adoptions.
type blockReader struct{ load *loader }

// addGates gives the stage its gates.
func (r *blockReader) addGates(s *Stage) {
	name := func(t gate.Type) string { return t.Name }
	for _, b := range s.definition.gates {
		if t := findType(r, s, b, r.load.options.Gates, name); t != nil {
			own := b.overriddenBy(s.entry.gates)
			r.setArguments(s, own, t.Attributes, t.Check, "timeout", "stable", "needs", "when")
			s.Gates = append(s.Gates, &Gate{Type: *t, Label: b.labels[1], Of: s, block: own})
		}
	}
	r.checkOverrides(s)
}

// add gives the stage its gates, preflights and adoptions.
func (r *blockReader) add(s *Stage) {
	r.addGates(s)
	name := func(t gate.PreflightType) string { return t.Name }
	for _, b := range s.definition.preflights {
		if t := findType(r, s, b, r.load.options.Preflights, name); t != nil {
			own := b.overriddenBy(nil)
			r.setArguments(s, own, t.Attributes, t.Check)
			s.Preflights = append(s.Preflights, &Preflight{Type: *t, Label: b.labels[1], block: own})
		}
	}
	for _, b := range s.definition.adopts {
		own := b.overriddenBy(nil)
		r.setArguments(s, own, map[string]gate.Attribute{"id": {Type: cty.String, Required: true}}, nil)
		own.takes = map[string]gate.Attribute{"id": {Type: cty.String}} // null: nothing to adopt
		r.checkAddress(s, own)
		s.Adopts = append(s.Adopts, &Adopt{Address: b.labels[0], Exists: r.exists(s, b.exists), block: own})
	}
	for _, b := range s.definition.replaces {
		own := b.overriddenBy(nil)
		r.setArguments(s, own, map[string]gate.Attribute{"instance": {Type: cty.Map(cty.String),
			Required: true}}, nil)
		r.checkAddress(s, own)
		s.Replaces = append(s.Replaces, &Replace{Address: b.labels[0], block: own})
	}
	r.addSurvivors(s)
}

// exists returns the lookup of an adoption, if it has one.
func (r *blockReader) exists(s *Stage, b *block) *Exists {
	if b == nil {
		return nil
	}
	t := findType(r, s, b, r.load.options.Exists, func(t gate.ExistsType) string { return t.Name })
	if t == nil {
		return nil
	}
	own := b.overriddenBy(nil)
	r.setArguments(s, own, t.Attributes, t.Check, "timeout")
	return &Exists{Type: *t, block: own}
}

// findType returns the block's type, or reports that there is none and returns nil.
func findType[T any](r *blockReader, s *Stage, b *block, types []T, name func(T) string) *T {
	var names []string
	for i, t := range types {
		if name(t) == b.labels[0] {
			return &types[i]
		}
		names = append(names, name(t))
	}
	r.load.diags.add(b.at, b.of(s)+": unknown type "+b.labels[0],
		"The types are %s%s", strings.Join(names, ", "), syntax.Hint(b.labels[0], names))
	return nil
}

// overriddenBy returns a copy of the block, with the arguments of the override of its key.
func (b *block) overriddenBy(overrides []*block) *block {
	merged := *b
	merged.args = maps.Clone(b.args)
	for _, o := range overrides {
		if o.key() == b.key() {
			maps.Copy(merged.args, o.args)
			if o.needs != nil {
				merged.needs = o.needs
			}
		}
	}
	return &merged
}

func (r *blockReader) checkOverrides(s *Stage) {
	keys := xslices.Map(s.definition.gates, func(b *block) string { return b.key() })
	for _, o := range s.entry.gates {
		if !slices.Contains(keys, o.key()) && !s.definition.incomplete {
			r.load.diags.add(o.at, fmt.Sprintf("stage %s: no gate %s to override", s.Name, o.key()),
				"%s has none of this type and label%s", s.definition.file, syntax.Hint(o.key(), keys))
		}
	}
}

// setArguments gives a block the arguments of its type, and reports others, beside common, and missing ones.
func (r *blockReader) setArguments(s *Stage, b *block, takes map[string]gate.Attribute,
	check func(gate.Values) error, common ...string) {
	b.takes, b.check = takes, check
	names := slices.AppendSeq(common, maps.Keys(takes))
	for _, name := range slices.Sorted(maps.Keys(b.args)) {
		if arg := b.args[name]; !slices.Contains(names, name) {
			r.load.diags.add(arg.NameRange, b.of(s)+": unknown argument "+name,
				"This type of %s does not take it%s", b.kind, syntax.Hint(name, names))
			delete(b.args, name)
			if meant := syntax.Nearest(name, names); b.args[meant] == nil && takes[meant].Required {
				b.args[meant] = unknownArgument(meant, arg.Range)
			}
		}
	}
	for name, attribute := range takes {
		if b.args[name] == nil && attribute.Required {
			r.load.diags.add(b.at, b.of(s)+": missing argument "+name,
				"%s", strings.TrimSuffix("It is required: "+attribute.Help, ": "))
			b.args[name] = unknownArgument(name, b.at)
		}
	}
}

// unknownArgument stands in for an argument that has been reported.
func unknownArgument(name string, at hcl.Range) *hcl.Attribute {
	return &hcl.Attribute{Name: name, Expr: hcl.StaticExpr(cty.DynamicVal, at)}
}

// checkAddress reports an unknown resource of the root module. castle does not read child modules.
func (r *blockReader) checkAddress(s *Stage, b *block) {
	address, resource := b.labels[0], ""
	t, diags := hclsyntax.ParseTraversalAbs([]byte(address), b.at.Filename, hcl.InitialPos)
	if !diags.HasErrors() && len(t) > 1 {
		if name, ok := t[1].(hcl.TraverseAttr); ok {
			resource = t.RootName() + "." + name.Name
		}
	}
	switch {
	case resource == "":
		r.load.diags.add(b.at, b.of(s)+": unsuitable address", "%q is not of the form <type>.<name>.",
			address)
	case s.definition.incomplete:
	case t.RootName() != "module" && !s.definition.resources[resource]:
		r.load.diags.add(b.at, b.of(s)+": unknown resource", "The module %s has no resource %s%s", s.Source,
			resource, syntax.Hint(resource, slices.Collect(maps.Keys(s.definition.resources))))
	}
}

// of is the block's name in messages that name its stage, too.
func (b *block) of(s *Stage) string { return "stage " + s.Name + ": " + b.name() }

// Values returns the gate's arguments in the scope of the stage that has it.
func (g *Gate) Values(sc Scope) (gate.Values, hcl.Diagnostics) {
	values, diags := g.block.values(g.Of, sc)
	if b, decided := sc.Births[g.Label]; g.OfData && decided {
		values[survivor.BirthArgument] = b.Encode()
	}
	return values, diags
}

// Values returns the preflight's arguments for stage s.
func (p *Preflight) Values(s *Stage, sc Scope) (gate.Values, hcl.Diagnostics) {
	return p.block.values(s, sc)
}

// Values returns the arguments for stage s.
func (e *Exists) Values(s *Stage, sc Scope) (gate.Values, hcl.Diagnostics) {
	return e.block.values(s, sc)
}

// ID returns the import id of the resource for stage s; empty: there is nothing to adopt.
func (a *Adopt) ID(s *Stage, sc Scope) (string, hcl.Diagnostics) {
	values, diags := a.block.values(s, sc)
	return values.String("id"), diags
}

// Instances returns for stage s what tells an object that is configured from the one before it, by key.
func (r *Replace) Instances(s *Stage, sc Scope) (map[string]string, hcl.Diagnostics) {
	values, diags := r.block.values(s, sc)
	var all map[string]string
	if err := values.Decode("instance", &all); err != nil && !diags.HasErrors() {
		diags = append(diags, syntax.Problem(r.block.at, r.block.of(s)+": unsuitable instance", "%s.", err))
	}
	return all, diags
}

// values evaluates a block's arguments. A null one counts as not set.
func (b *block) values(s *Stage, sc Scope) (gate.Values, hcl.Diagnostics) {
	var diags hcl.Diagnostics
	values := make(gate.Values)
	for _, name := range slices.Sorted(maps.Keys(b.takes)) {
		arg := b.args[name]
		if arg == nil {
			continue
		}
		v, more := b.argument(s, arg, b.takes[name], sc)
		diags = append(diags, more...)
		if !v.IsNull() {
			values[name] = v
		}
	}
	if b.check == nil || diags.HasErrors() {
		return values, syntax.Distinct(diags)
	}
	if err := b.check(values); err != nil {
		diags = append(diags, syntax.Problem(b.at, b.of(s)+": unsuitable arguments", "%s.", err))
	}
	return values, diags
}

func (b *block) argument(s *Stage, arg *hcl.Attribute, takes gate.Attribute,
	sc Scope) (cty.Value, hcl.Diagnostics) {
	v, diags := s.evaluate(arg.Expr, sc)
	if diags.HasErrors() {
		return cty.UnknownVal(takes.Type), diags
	}
	v, err := syntax.Convert(v, takes.Type)
	switch {
	case err != nil:
	case v.IsNull() && takes.Required:
		err = errors.New("a value is needed, not null")
	case takes.Valid != nil && v.IsWhollyKnown() && !v.IsNull():
		err = takes.Valid(v)
	}
	if err != nil {
		d := syntax.Problem(arg.Expr.Range(), b.of(s)+": unsuitable "+arg.Name, "%s.", err)
		extra := Argument{Type: b.labels[0], Name: arg.Name}
		for _, r := range references(arg.Expr) {
			if r.root == "var" && extra.Variable == "" {
				extra.Variable = r.name
			}
		}
		d.Extra = extra
		return cty.UnknownVal(takes.Type), append(diags, d)
	}
	return v, diags
}

// blocks are the stage's preflights, adoptions, replacements and data.
func (s *Stage) blocks() []*block {
	all := xslices.Map(s.Preflights, func(p *Preflight) *block { return p.block })
	all = append(all, xslices.Map(s.Survivors, func(d *Survivor) *block { return d.block })...)
	for _, a := range s.Adopts {
		all = append(all, a.block)
		if a.Exists != nil {
			all = append(all, a.Exists.block)
		}
	}
	return append(all, xslices.Map(s.Replaces, func(r *Replace) *block { return r.block })...)
}

// Strings returns every string in the known values, sorted. The lab finds addresses and hosts there.
func (c *Cluster) Strings() []string {
	found := make(map[string]bool)
	add := func(values map[string]cty.Value, _ hcl.Diagnostics) { // Load has reported what is wrong
		for _, v := range values {
			syntax.CollectTexts(found, v)
		}
	}
	for _, s := range c.Stages {
		add(s.Inputs(Scope{unknown: true}))
		for _, b := range s.blocks() {
			add(b.values(s, Scope{unknown: true}))
		}
		for _, g := range s.Gates {
			add(g.Values(Scope{unknown: true}))
		}
	}
	return slices.Sorted(maps.Keys(found))
}

// Secrets returns every string that is secret before a run: those of secrets.tfvars, and the values of
// sensitive variables. Another stage may take such a value without calling it sensitive.
func (c *Cluster) Secrets() []string {
	found := make(map[string]bool)
	for _, w := range c.secrets {
		syntax.CollectTexts(found, w.Value)
	}
	for _, s := range c.Stages {
		inputs, _ := s.Inputs(Scope{unknown: true}) // Load has reported what is wrong
		for name, v := range inputs {
			if s.Variables[name].Sensitive {
				syntax.CollectTexts(found, v)
			}
		}
	}
	return slices.Sorted(maps.Keys(found))
}

// delegateGates gives the gates of every disabled stage, whose components Flux may install, to the stage that
// asked_by names. They are evaluated with the variables of the disabled stage, which has no outputs.
func (r *blockReader) delegateGates() {
	for _, s := range slices.Concat(r.load.cluster.Stages, r.load.cluster.Disabled) {
		if s.entry.Delegate == "" {
			continue
		}
		if delegate := r.delegate(s); delegate != nil {
			s.Delegate = delegate
			r.load.diags.report(s.definition.diags.Diagnostics...)
			r.addGates(s)
			r.load.values.bindGates(s)
			delegate.Gates, s.Gates = append(delegate.Gates, s.Gates...), nil
		}
	}
}

// delegate finds the stage that asked_by names.
func (r *blockReader) delegate(s *Stage) *Stage {
	e := s.entry
	refuse := func(problem, detail string, args ...any) *Stage {
		r.load.diags.add(e.DelegateAt, fmt.Sprintf("stage %s: asked_by = %q: %s", s.Name, e.Delegate,
			problem), detail, args...)
		return nil
	}
	var found *Stage
	var enabled []string
	for _, o := range slices.Concat(r.load.cluster.Stages, r.load.cluster.Disabled) {
		if o.Name == e.Delegate {
			found = o
		}
		if !o.entry.disabled {
			enabled = append(enabled, o.Name)
		}
	}
	switch {
	case !e.disabled:
		return refuse("the stage is enabled", "castle checks the gates of an enabled stage with the stage. "+
			"Remove asked_by, or set enabled = false because Flux installs what the stage would.")
	case found == nil:
		return refuse("no such stage", "Name an enabled stage of this cluster%s",
			syntax.Hint(e.Delegate, enabled))
	case found.entry.disabled:
		return refuse("disabled itself",
			"It is disabled at %s. Name the enabled stage that installs what %s would.",
			syntax.Place(found.entry.At), s.Name)
	case layerIndex(found.Layer) < layerIndex(s.Layer):
		return refuse("of an earlier layer",
			"Stage %s is of layer %s; gates of layer %s need a stage of the same or a later layer.",
			found.Name, found.Layer, s.Layer)
	case len(s.definition.gates) == 0 && !s.definition.incomplete:
		return refuse("no gates", "%s has no gates. Remove asked_by.", s.Source)
	}
	return found
}

// extendTimeouts lets delegated gates wait as long as the slowest of the stage's own:
// Flux begins only when the stage is applied. A timeout in cluster.hcl stands.
func (s *Stage) extendTimeouts() {
	longest := time.Duration(0)
	for _, g := range s.Gates {
		if g.Of == s {
			longest = max(longest, g.Policy.EffectiveTimeout())
		}
	}
	for _, g := range s.Gates {
		set := slices.ContainsFunc(g.Of.entry.gates, func(o *block) bool {
			return o.args["timeout"] != nil && o.key() == g.block.key()
		})
		if g.Of != s && !set && g.Policy.EffectiveTimeout() < longest {
			g.Policy.Timeout = longest
		}
	}
}

// Delegated reports whether asked_by names a stage, even one that castle refuses.
func (s *Stage) Delegated() bool { return s.entry.Delegate != "" }

// Missed reports whether Load has reported that the stage is disabled although others need its outputs.
func (s *Stage) Missed() bool { return s.missed }

// HasGates reports whether the stage's folder has gates, delegated or not.
func (s *Stage) HasGates() bool { return len(s.definition.gates) > 0 }

// At is where cluster.hcl names the stage.
func (s *Stage) At() hcl.Range { return s.entry.At }
