package config

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/hashicorp/hcl/v2"
)

// What a disabled stage would make, somebody else may bring: Flux, from Git. Its
// gates hold for that, too, and asked_by names the stage that asks them then. They
// are judged with the disabled stage's own variables, as far as the gates name
// them; outputs it has none.

// askGates gives the gates of every disabled stage to the stage that asks them.
func (l *loader) askGates() {
	for _, s := range slices.Concat(l.cluster.Stages, l.cluster.Disabled) {
		if s.entry.askedBy == "" {
			continue
		}
		if asker := l.asker(s); asker != nil {
			s.AskedBy = asker
			l.report(s.definition.diags...)
			l.addGates(s)
			l.bindAsked(s)
			asker.Gates, s.Gates = append(asker.Gates, s.Gates...), nil
		}
	}
}

// asker finds the stage that asked_by names.
func (l *loader) asker(s *Stage) *Stage {
	e := s.entry
	refuse := func(what, detail string, args ...any) *Stage {
		l.report(problem(e.askedAt, fmt.Sprintf("stage %s: asked_by = %q: %s", s.Name, e.askedBy, what), detail, args...))
		return nil
	}
	if e.enabled {
		return refuse("the stage is enabled", "An enabled stage's gates are asked with the stage. Remove asked_by, or set enabled = false because somebody else brings what the stage would make.")
	}
	i := slices.IndexFunc(l.cluster.Stages, func(o *Stage) bool { return o.Name == e.askedBy })
	if i < 0 {
		if j := slices.IndexFunc(l.cluster.Disabled, func(o *Stage) bool { return o.Name == e.askedBy }); j >= 0 {
			return refuse("disabled itself", "It is disabled at %s. Name the enabled stage that makes somebody bring what %s would make.", place(l.cluster.Disabled[j].entry.at), s.Name)
		}
		var names []string
		for _, o := range l.cluster.Stages {
			names = append(names, o.Name)
		}
		return refuse("no such stage", "Name an enabled stage of this cluster%s", orStop(DidYouMean(e.askedBy, names)))
	}
	asker := l.cluster.Stages[i]
	switch {
	case layerIndex(asker.Layer) < layerIndex(s.Layer):
		return refuse("of an earlier layer", "Stage %s is of layer %s; gates of layer %s can be asked by a stage of the same or a later layer.", asker.Name, asker.Layer, s.Layer)
	case len(s.definition.gates) == 0:
		return refuse("there is nothing to ask", "%s has no gates. Remove asked_by.", s.Source)
	}
	return asker
}

// bindAsked binds the variables that the gates of a disabled stage name, and no
// others: nobody applies it, so nothing else need have a value.
func (l *loader) bindAsked(s *Stage) {
	l.checkInputs(s, s.entry.stage.inputs)
	var bind func(expr hcl.Expression)
	bind = func(expr hcl.Expression) {
		for _, r := range references(expr) {
			v, declared := s.Variables[r.name]
			if r.root != "var" || !declared || s.bindings[r.name] != nil {
				continue
			}
			b := l.binding(s, v)
			s.bindings[r.name] = b
			if b.expr != nil {
				bind(b.expr)
			}
		}
	}
	for _, g := range s.Gates {
		for _, name := range slices.Sorted(maps.Keys(g.block.args)) {
			bind(g.block.args[name])
		}
	}
}

// giveTime lets the gates that a stage asks for a disabled one wait as long as its
// own slowest: whoever brings it begins only when the stage is applied. A timeout
// in cluster.hcl stands.
func (s *Stage) giveTime() {
	longest := time.Duration(0)
	for _, g := range s.Gates {
		if g.Of == s {
			longest = max(longest, g.Policy.EffectiveTimeout())
		}
	}
	for _, g := range s.Gates {
		set := slices.ContainsFunc(g.Of.entry.gates, func(o *block) bool { _, ok := o.args["timeout"]; return ok && o.key() == g.block.key() })
		if g.Of != s && !set && g.Policy.EffectiveTimeout() < longest {
			g.Policy.Timeout = longest
		}
	}
}

// Waiter is a stage, or a gate of one, that waits for a layer by `needs`.
type Waiter struct {
	Stage *Stage
	Gate  *Gate // nil: the whole stage waits
}

// Waiters are the enabled stages and gates whose `needs` names a layer.
func (c *Cluster) Waiters(layer string) []Waiter {
	named := func(needs []layerName) bool {
		return slices.ContainsFunc(needs, func(n layerName) bool { return n.name == layer })
	}
	var all []Waiter
	for _, s := range c.Stages {
		if named(s.layerNeeds()) {
			all = append(all, Waiter{Stage: s})
		}
		for _, g := range s.Gates {
			if named(g.block.needs) {
				all = append(all, Waiter{Stage: s, Gate: g})
			}
		}
	}
	return all
}

// layerNeeds are the layers that the stage as a whole waits for by name.
func (s *Stage) layerNeeds() []layerName {
	if s.entry.stage.needs != nil {
		return s.entry.stage.needs
	}
	return s.definition.stage.needs
}

// HasGates reports whether the stage's folder has gates, whoever asks them.
func (s *Stage) HasGates() bool { return len(s.definition.gates) > 0 }

// At is where cluster.hcl names the stage.
func (s *Stage) At() hcl.Range { return s.entry.at }
