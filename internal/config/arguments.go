package config

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/hashicorp/hcl/v2"
	"github.com/zclconf/go-cty/cty"

	"github.com/ephemeral-castle/castle/internal/gate"
)

// Values returns the gate's arguments; sc is the scope of the stage that asks it.
func (g *Gate) Values(sc Scope) (gate.Values, hcl.Diagnostics) { return g.block.values(g.Of, sc) }

// Values returns the preflight's arguments for stage s.
func (p *Preflight) Values(s *Stage, sc Scope) (gate.Values, hcl.Diagnostics) {
	return p.block.values(s, sc)
}

// Values returns the question's arguments for stage s.
func (e *Exists) Values(s *Stage, sc Scope) (gate.Values, hcl.Diagnostics) {
	return e.block.values(s, sc)
}

// ID returns the import id of the resource for stage s; empty if there is
// nothing to adopt.
func (a *Adopt) ID(s *Stage, sc Scope) (string, hcl.Diagnostics) {
	values, diags := a.block.values(s, sc)
	return values.String("id"), diags
}

// values evaluates a block's arguments. What is null counts as not given.
func (b *block) values(s *Stage, sc Scope) (gate.Values, hcl.Diagnostics) {
	var diags hcl.Diagnostics
	values := make(gate.Values)
	for _, name := range slices.Sorted(maps.Keys(b.takes)) {
		expr, ok := b.args[name]
		if !ok {
			continue
		}
		v, more := b.argument(s, name, expr, b.takes[name], sc)
		diags = append(diags, more...)
		if !v.IsNull() {
			values[name] = v
		}
	}
	if b.check == nil || diags.HasErrors() {
		return values, distinct(diags)
	}
	if err := b.check(values); err != nil {
		diags = append(diags, problem(b.at, fmt.Sprintf("stage %s: %s: unsuitable arguments", s.Name, b.name()), "%s.", err))
	}
	return values, diags
}

// Argument is the Extra of a diagnostic about an unsuitable argument of a gate or a preflight.
type Argument struct{ Type, Name string }

func (b *block) argument(s *Stage, name string, expr hcl.Expression, takes gate.Attribute, sc Scope) (cty.Value, hcl.Diagnostics) {
	v, diags := s.evaluate(expr, sc)
	if diags.HasErrors() {
		return cty.UnknownVal(takes.Type), diags
	}
	v, err := convertTo(v, takes.Type)
	switch {
	case err != nil:
	case v.IsNull() && takes.Required:
		err = errors.New("a value is needed, not null")
	case takes.Valid != nil && v.IsWhollyKnown() && !v.IsNull():
		err = takes.Valid(v)
	}
	if err != nil {
		d := problem(expr.Range(), fmt.Sprintf("stage %s: %s: unsuitable %s", s.Name, b.name(), name), "%s.", err)
		d.Extra = Argument{b.labels[0], name}
		return cty.UnknownVal(takes.Type), append(diags, d)
	}
	return v, diags
}

// checkValues evaluates everything a stage says as far as it is known before a run.
func (l *loader) checkValues(s *Stage) {
	sc := s.beforehand()
	_, diags := s.Inputs(sc)
	l.report(diags...)
	for _, b := range s.blocks() {
		_, diags := b.values(s, sc)
		l.report(diags...)
	}
	for _, g := range s.Gates {
		_, diags := g.Values(g.Of.beforehand())
		l.report(diags...)
		g.Policy.Timeout = l.policy(g.Of, g.block, "timeout", gate.Attribute{Type: cty.String, Valid: gate.ValidDuration}).Duration("timeout")
		g.Policy.Stable = l.policy(g.Of, g.block, "stable", gate.Attribute{Type: cty.Number, Valid: gate.ValidCount}).Int("stable")
	}
	s.giveTime()
	for _, a := range s.Adopts {
		if e := a.Exists; e != nil {
			e.Policy.Timeout = l.policy(s, e.block, "timeout", gate.Attribute{Type: cty.String, Valid: gate.ValidDuration}).Duration("timeout")
		}
	}
}

// policy evaluates an argument that every gate takes and that a run must know when it begins.
func (l *loader) policy(s *Stage, b *block, name string, takes gate.Attribute) gate.Values {
	expr, ok := b.args[name]
	if !ok {
		return nil
	}
	v, diags := b.argument(s, name, expr, takes, s.beforehand())
	l.report(diags...)
	if !diags.HasErrors() && !v.IsKnown() && len(references(expr)) > 0 {
		l.report(problem(expr.Range(), fmt.Sprintf("stage %s: %s: %s is not known before a run", s.Name, b.name(), name),
			"It can name no output."))
	}
	return gate.Values{name: v}
}

// blocks are the stage's preflights and adoptions.
func (s *Stage) blocks() []*block {
	var all []*block
	for _, p := range s.Preflights {
		all = append(all, p.block)
	}
	for _, a := range s.Adopts {
		all = append(all, a.block)
		if a.Exists != nil {
			all = append(all, a.Exists.block)
		}
	}
	return all
}

// Strings returns every string in the cluster's known values, nested ones too,
// sorted and each once. The lab finds addresses and hosts there.
func (c *Cluster) Strings() []string {
	found := make(map[string]bool)
	for _, s := range c.Stages {
		sc := s.beforehand()
		inputs, _ := s.Inputs(sc) // Load has reported what is wrong
		for _, v := range inputs {
			collect(found, v)
		}
		add := func(values gate.Values, _ hcl.Diagnostics) {
			for _, v := range values {
				collect(found, v)
			}
		}
		for _, b := range s.blocks() {
			add(b.values(s, sc))
		}
		for _, g := range s.Gates {
			add(g.Values(g.Of.beforehand()))
		}
	}
	return slices.Sorted(maps.Keys(found))
}
