package config

import (
	"fmt"
	"slices"
	"time"

	"github.com/hashicorp/hcl/v2"
)

// Flux may install the components of a disabled stage, and the stage's gates hold for them too: asked_by
// delegates the gates to an enabled stage. They are evaluated with the variables of the disabled stage; it
// has no outputs.

// delegateGates gives the gates of every disabled stage to its delegate.
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
		return refuse("no such stage", "Name an enabled stage of this cluster%s", hint(e.Delegate, enabled))
	case found.entry.disabled:
		return refuse("disabled itself",
			"It is disabled at %s. Name the enabled stage that installs what %s would.",
			Place(found.entry.At), s.Name)
	case layerIndex(found.Layer) < layerIndex(s.Layer):
		return refuse("of an earlier layer",
			"Stage %s is of layer %s; gates of layer %s need a stage of the same or a later layer.",
			found.Name, found.Layer, s.Layer)
	case len(s.definition.gates) == 0:
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

// layerNeeds are the layers that `needs` of the whole stage names.
func (s *Stage) layerNeeds() []layerName {
	if s.entry.settings.needs != nil {
		return s.entry.settings.needs
	}
	return s.definition.settings.needs
}

// HasGates reports whether the stage's folder has gates, delegated or not.
func (s *Stage) HasGates() bool { return len(s.definition.gates) > 0 }

// At is where cluster.hcl names the stage.
func (s *Stage) At() hcl.Range { return s.entry.At }
