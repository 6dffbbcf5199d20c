package config

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/siderolabs/gen/xslices"
	"github.com/zclconf/go-cty/cty"

	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/graph"
	"github.com/ephemeral-castle/castle/internal/outline"
	"github.com/ephemeral-castle/castle/internal/syntax"
)

// need is one edge, its reason and its place.
type need struct {
	stage    *Stage
	at       hcl.Range
	reads    string // the output, "platform.vip"; "" where `needs` orders
	connects bool   // castle reads the output, to reach the cluster
}

// Edge is another stage that a stage, or one of its gates, waits for, and the reasons.
type Edge struct {
	From     *Stage
	Values   []string // the outputs of From that are read: "platform.vip"; sorted
	Connects bool     // castle reaches the cluster through From's outputs
	Ordered  bool     // `needs` names From's layer
}

// Edges are the reasons for each of Needs, in its order.
func (s *Stage) Edges() []Edge { return edges(s.Needs, s.needs) }

// Edges are the reasons for each of Needs, in its order.
func (g *Gate) Edges() []Edge { return edges(g.Needs, g.needs) }

// Edges are the reasons for each of Needs, in its order.
func (p *Preflight) Edges() []Edge { return edges(p.Needs, p.needs) }

func edges(stages []*Stage, needs []need) []Edge {
	all := make([]Edge, len(stages))
	for i, s := range stages {
		all[i].From = s
		for _, n := range needs {
			switch {
			case n.stage != s:
			case n.connects:
				all[i].Connects = true
			case n.reads == "":
				all[i].Ordered = true
			case !slices.Contains(all[i].Values, n.reads):
				all[i].Values = append(all[i].Values, n.reads)
			}
		}
		slices.Sort(all[i].Values)
	}
	return all
}

// DeferredGates returns the gates that wait for stages other than their own.
func (s *Stage) DeferredGates() []*Gate {
	return slices.DeleteFunc(slices.Clone(s.Gates), func(g *Gate) bool { return len(g.Needs) == 0 })
}

// ImmediateGates returns the gates that castle checks as soon as their stage is applied.
func (s *Stage) ImmediateGates() []*Gate {
	return slices.DeleteFunc(slices.Clone(s.Gates), func(g *Gate) bool { return len(g.Needs) > 0 })
}

// connector finds the edges of the graph.
type connector struct {
	load   *loader
	absent []absence
}

// absence is a reference to an output that no enabled stage has.
type absence struct {
	stage         *Stage // that needs it
	layer, output string
	connects      bool // castle itself reads it, to reach the cluster
	problem       *hcl.Diagnostic
}

// connect finds the needs of the stage and its gates. An expression with a wrong name becomes unknown.
func (c *connector) connect(s *Stage) {
	c.connectInputs(s)
	for _, g := range s.Gates {
		g.needs = append(c.blockNeeds(g.Of, g.block), c.layerNeeds(g.Of, g.block.of(g.Of), g.block.needs)...)
	}
	s.Gates = slices.DeleteFunc(s.Gates, func(g *Gate) bool { // the cluster does without it
		v := c.load.policy(g.Of, g.block, "when", gate.Attribute{Type: cty.Bool, Required: true})["when"]
		return v != cty.NilVal && v.IsKnown() && v.False()
	})
	s.needs = append(s.needs, c.layerNeeds(s, "stage "+s.Name, s.layerNeeds())...)
	for _, p := range s.Preflights {
		p.needs = c.blockNeeds(s, p.block)
		p.Needs = c.distinctStages(s, p.needs)
	}
	for _, b := range s.blocks() {
		s.needs = append(s.needs, c.blockNeeds(s, b)...)
	}
	for _, d := range s.Survivors {
		d.needs = c.blockNeeds(s, d.block)
		d.Needs = c.distinctStages(s, d.needs)
		c.platformOutput(s, "kubeconfig", d.block.of(s), d.block.at)
		if layer := d.Type.Layer; layer != "" { // what restores the data comes before what uses them
			found := c.layerNeeds(s, d.block.of(s), []layerName{{layer, d.block.at}})
			if s.needs = append(s.needs, found...); len(found) == 0 && !c.load.partial[layer] {
				c.load.diags.add(d.block.at, d.block.of(s)+" needs a stage of layer "+layer, "It keeps the "+
					"data. castle stage list shows those that there are.")
			}
		}
	}
	c.connectPlatform(s)
	s.Needs = c.distinctStages(s, s.needs)
	for _, g := range s.Gates {
		early := func(n *Stage) bool { return slices.Contains(s.Needs, n) }
		g.Needs = slices.DeleteFunc(c.distinctStages(s, g.needs), early)
	}
}

// connectInputs finds the needs of the stage's inputs.
func (c *connector) connectInputs(s *Stage) {
	for _, name := range slices.Sorted(maps.Keys(s.bindings)) {
		if b := s.bindings[name]; b.Value == cty.NilVal {
			needs, ok := c.references(s, b.expr, site{of: "input " + name, input: true})
			b.needs, s.needs = needs, append(s.needs, needs...)
			if !ok {
				b.Value = cty.UnknownVal(s.Variables[name].Type)
			}
		}
	}
}

func (c *connector) blockNeeds(s *Stage, b *block) []need {
	var needs []need
	for _, name := range slices.Sorted(maps.Keys(b.args)) {
		expr := b.args[name].Expr
		more, ok := c.references(s, expr, site{of: b.name() + ": " + name, gate: b.kind == "gate"})
		needs = append(needs, more...)
		if !ok {
			b.args[name] = unknownArgument(name, expr.Range())
		}
	}
	return needs
}

// layerNeeds returns every enabled stage of the named layers.
func (c *connector) layerNeeds(s *Stage, of string, names []layerName) []need {
	var needs []need
	all := strings.Join(Layers(), ", ")
	for _, n := range names {
		named := func(other *Stage) bool { return other.Name == n.name }
		i := slices.IndexFunc(c.load.cluster.Stages, named)
		switch index := layerIndex(n.name); {
		case index < 0 && i >= 0 && c.load.cluster.Stages[i].Layer == s.Layer:
			c.load.diags.add(n.at, of+": needs unknown layer "+n.name, "It is a stage of the same layer, "+
				"where order comes from outputs: wire an input to %s.<output>.", s.Layer)
		case index < 0 && i >= 0:
			c.load.diags.add(n.at, of+": needs unknown layer "+n.name, "It is a stage: write needs = [%s].",
				c.load.cluster.Stages[i].Layer)
		case index < 0:
			c.load.diags.add(n.at, of+": needs unknown layer "+n.name, "The layers are %s%s", all,
				syntax.Hint(n.name, Layers()))
		case index == layerIndex(s.Layer):
			c.load.diags.add(n.at, of+": needs its own layer", "Inside layer %s, order comes from outputs: "+
				"wire an input to %s.<output> of the stage that comes first.", s.Layer, s.Layer)
		case index > layerIndex(s.Layer):
			c.load.diags.add(n.at, of+": needs the later layer "+n.name, "The order of layers is %s.", all)
		default:
			for _, other := range c.load.cluster.Stages {
				if other.Layer == n.name {
					needs = append(needs, need{stage: other, at: n.at})
				}
			}
		}
	}
	return needs
}

// connectPlatform adds the edges to the stage through which generated providers and gates reach the cluster.
func (c *connector) connectPlatform(s *Stage) {
	for _, address := range s.InCluster {
		of := fmt.Sprintf("stage %s: provider %s", s.Name, address)
		if c.platformOutput(s, "kubeconfig", of, s.entry.At) == s {
			c.load.diags.add(s.entry.At, of+" would need the stage's own kubeconfig",
				"castle configures the provider from platform.kubeconfig, which this stage itself has. "+
					"Configure the provider in %s.", s.Source)
		}
	}
	for _, g := range s.Gates {
		of := fmt.Sprintf("stage %s: gate %s", s.Name, g.Name())
		if g.Type.Kubernetes {
			c.platformOutput(s, "kubeconfig", of, g.block.at)
		}
		if g.Type.Talos {
			c.platformOutput(s, "talosconfig", of, g.block.at)
		}
	}
}

// platformOutput returns the stage that has the platform's output, and makes it a need of s unless it is s.
func (c *connector) platformOutput(s *Stage, output, of string, at hcl.Range) *Stage {
	s.NeedsPlatform = true
	owner := c.load.cluster.owners["platform"][output]
	switch {
	case layerIndex(s.Layer) < layerIndex("platform"):
		c.load.diags.add(at, of+" needs the platform",
			"Stage %s is of layer %s, which comes before the platform.", s.Name, s.Layer)
		return nil
	case owner == nil && !c.load.partial["platform"]:
		c.absent = append(c.absent, absence{s, "platform", output, true, syntax.Problem(at,
			of+" needs platform."+output, "castle connects it with this output. %s",
			c.outputHint("platform", output))})
	case owner != nil && owner != s:
		s.needs = append(s.needs, need{stage: owner, at: at, reads: "platform." + output, connects: true})
	}
	for _, other := range c.load.cluster.Stages { // what it installs in the cluster completes the platform
		if other.Layer == "platform" && s.Layer != "platform" && len(other.InCluster) > 0 {
			s.needs = append(s.needs, need{stage: other, at: at})
		}
	}
	return owner
}

// reportAbsent reports the outputs that no enabled stage has. It reports once what one stage would have, and
// returns the stages of the library that it suggests.
func (c *connector) reportAbsent() (suggested []string) {
	for _, layer := range Layers() {
		var names []string
		for _, a := range c.absent {
			if a.layer == layer && !slices.Contains(names, a.output) {
				names = append(names, a.output)
			}
		}
		slices.Sort(names)
		has := func(source, output string) bool {
			if maker := c.disabled(layer, output); maker != nil {
				return maker.Source == source
			}
			return slices.Contains(c.load.library.provides(layer, output), source)
		}
		for _, g := range outline.Groups(names, c.load.library.sources(), has) {
			suggested = append(suggested, g.Sources...)
			c.reportGroup(layer, g)
		}
	}
	for i := 0; i < len(suggested); i++ { // and those that the suggested ones need
		for _, in := range c.load.library.definition(suggested[i]).settings.inputs {
			for _, r := range references(in.expr) {
				if c.load.cluster.owners[r.root][r.name] == nil {
					suggested = append(suggested, c.load.library.provides(r.root, r.name)...)
				}
			}
		}
	}
	return suggested
}

// reportGroup reports outputs that the same stages of the library have, or an output that none has.
func (c *connector) reportGroup(layer string, g outline.Group) {
	var problems hcl.Diagnostics
	var stages []*Stage
	connects := false
	for _, a := range c.absent {
		if a.layer != layer || !slices.Contains(g.Names, a.output) {
			continue
		}
		if !a.connects || !connects || len(g.Sources) > 0 {
			problems = append(problems, a.problem)
		}
		connects = connects || a.connects
		if !slices.Contains(stages, a.stage) {
			stages = append(stages, a.stage)
		}
	}
	maker := c.disabled(layer, g.Names[0])
	if maker != nil {
		maker.missed = true
	}
	if len(g.Sources) == 0 || len(syntax.Distinct(slices.Clone(problems))) == 1 {
		c.load.diags.report(problems...)
		return
	}
	file, outputs := c.load.file("cluster.hcl"), strings.Join(g.Names, ", ")
	if maker != nil {
		c.load.diags.add(maker.entry.At, "stage "+maker.Name+": disabled, but needed",
			"Enable it for %s (outputs: %s); or disable these, too, so that the system that installs %s "+
				"installs all of them; or write the values in %s.", stageNames(stages), outputs, maker.Name,
			file)
		return
	}
	first := slices.MinFunc(stages, func(a, b *Stage) int {
		return a.entry.At.Start.Byte - b.entry.At.Start.Byte
	})
	c.load.diags.add(first.entry.At, "layer "+layer+": a stage is missing",
		"Add to %s: %s. It is needed by %s (outputs: %s).", file, outline.Blocks(g.Sources),
		stageNames(stages), outputs)
}

// distinctStages returns the stages of needs without s, each once, in the cluster's order.
func (c *connector) distinctStages(s *Stage, needs []need) []*Stage {
	return xslices.Filter(c.load.cluster.Stages, func(other *Stage) bool {
		return other != s && slices.ContainsFunc(needs, func(n need) bool { return n.stage == other })
	})
}

// checkCycles reports stages that wait for each other, or for each other's gates.
func (c *connector) checkCycles() {
	stages := slices.Clone(c.load.cluster.Stages)
	needs := func(s *Stage) []*Stage { return c.distinctStages(s, s.allNeeds()) }
	for {
		_, err := graph.Sort(stages, needs)
		cycle, found := errors.AsType[*graph.CycleError[*Stage]](err)
		if !found {
			return
		}
		c.reportCycle(cycle.Path)
		stages = slices.DeleteFunc(stages, func(s *Stage) bool { return slices.Contains(cycle.Path, s) })
	}
}

// allNeeds returns the needs of the stage and of its gates.
func (s *Stage) allNeeds() []need {
	return append(slices.Clone(s.needs), xslices.FlatMap(s.Gates, func(g *Gate) []need { return g.needs })...)
}

func (c *connector) reportCycle(path []*Stage) {
	names, hops, first := []string{path[0].Name}, []string{}, hcl.Range{}
	for i, s := range path[1:] {
		needs := path[i].allNeeds()
		n := needs[slices.IndexFunc(needs, func(n need) bool { return n.stage == s })]
		names = append(names, s.Name)
		hops = append(hops, fmt.Sprintf("%s needs %s (%s)", path[i].Name, s.Name, syntax.Place(n.at)))
		if i == 0 {
			first = n.at
		}
	}
	c.load.diags.add(first, "cycle: "+strings.Join(names, " → "), "%s. Remove one of these needs.",
		strings.Join(hops, ", "))
}

// Waiter is a stage, or a gate of one, that waits for a layer by `needs`.
type Waiter struct {
	Stage *Stage
	Gate  *Gate // nil: the whole stage waits
}

// Waiters are the enabled stages and gates whose `needs` names a layer.
func (c *Cluster) Waiters(layer string) (all []Waiter) {
	named := func(needs []layerName) bool {
		return slices.ContainsFunc(needs, func(n layerName) bool { return n.name == layer })
	}
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
