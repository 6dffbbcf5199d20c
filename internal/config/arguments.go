package config

import (
	"errors"
	"maps"
	"slices"

	"github.com/hashicorp/hcl/v2"
	"github.com/zclconf/go-cty/cty"

	"github.com/ephemeral-castle/castle/internal/gate"
)

// of is the block's name in messages that name its stage, too.
func (b *block) of(s *Stage) string { return "stage " + s.Name + ": " + b.name() }

// Values returns the gate's arguments in the scope of the stage that has it.
func (g *Gate) Values(sc Scope) (gate.Values, hcl.Diagnostics) { return g.block.values(g.Of, sc) }

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

// values evaluates a block's arguments. A null one counts as not set.
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
		diags = append(diags, problem(b.at, b.of(s)+": unsuitable arguments", "%s.", err))
	}
	return values, diags
}

func (b *block) argument(s *Stage, name string, expr hcl.Expression, takes gate.Attribute,
	sc Scope) (cty.Value, hcl.Diagnostics) {
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
		d := problem(expr.Range(), b.of(s)+": unsuitable "+name, "%s.", err)
		d.Extra = Argument{Type: b.labels[0], Name: name}
		return cty.UnknownVal(takes.Type), append(diags, d)
	}
	return v, diags
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
		sc := s.unknownScope()
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
			add(g.Values(g.Of.unknownScope()))
		}
	}
	return slices.Sorted(maps.Keys(found))
}

// Secrets returns every string that is secret before a run: those of secrets.tfvars,
// and the values of sensitive variables. Another stage may take such a value without
// calling it sensitive.
func (c *Cluster) Secrets() []string {
	found := make(map[string]bool)
	for _, v := range c.secrets {
		collect(found, v.value)
	}
	for _, s := range c.Stages {
		inputs, _ := s.Inputs(s.unknownScope()) // Load has reported what is wrong
		for name, v := range inputs {
			if s.Variables[name].Sensitive {
				collect(found, v)
			}
		}
	}
	return slices.Sorted(maps.Keys(found))
}

// collect adds every known string inside v, at any depth, to found.
func collect(found map[string]bool, v cty.Value) {
	cty.Walk(v, func(_ cty.Path, v cty.Value) (bool, error) { //nolint:errcheck // the function returns none
		if v.Type() == cty.String && v.IsKnown() && !v.IsNull() {
			found[v.AsString()] = true
		}
		return true, nil
	})
}
