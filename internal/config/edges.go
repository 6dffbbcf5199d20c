package config

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/zclconf/go-cty/cty"
)

// need is one edge, why there is one, and the place that asks for it.
type need struct {
	stage    *Stage
	at       hcl.Range
	reads    string // the output that is read, "platform.vip"; "" where `needs` orders
	connects bool   // castle reads it, to reach the cluster
}

// Edge says that a stage, or one of its gates, waits for another stage, and why:
// for several reasons, as a rule.
type Edge struct {
	From     *Stage
	Values   []string // the outputs of From that are read: "platform.vip"; sorted
	Connects bool     // castle reaches the cluster through what From says
	Ordered  bool     // `needs` names From's layer
}

// Edges are the reasons for each of Needs, in its order.
func (s *Stage) Edges() []Edge { return edges(s.Needs, s.needs) }

// Edges are the reasons for each of Needs, in its order.
func (g *Gate) Edges() []Edge { return edges(g.Needs, g.needs) }

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

// connect finds what the stage and its gates need. An expression with a name
// that is not good becomes an unknown value, so that it is not reported twice.
func (l *loader) connect(s *Stage) {
	l.connectInputs(s)
	for _, name := range slices.Sorted(maps.Keys(s.bindings)) {
		s.needs = append(s.needs, s.bindings[name].needs...)
	}
	s.needs = append(s.needs, l.layerNeeds(s, "stage "+s.Name, s.layerNeeds())...)
	for _, p := range s.Preflights {
		needs := l.blockNeeds(s, p.block)
		p.Needs = l.distinctStages(s, needs)
		s.needs = append(s.needs, needs...)
	}
	for _, a := range s.Adopts {
		s.needs = append(s.needs, l.blockNeeds(s, a.block)...)
		if a.Exists != nil {
			s.needs = append(s.needs, l.blockNeeds(s, a.Exists.block)...)
		}
	}
	l.connectPlatform(s)
	s.Needs = l.distinctStages(s, s.needs)
	for _, g := range s.Gates {
		g.needs = append(g.needs, l.blockNeeds(g.Of, g.block)...)
		g.needs = append(g.needs, l.layerNeeds(g.Of, "stage "+g.Of.Name+": "+g.block.name(), g.block.needs)...)
		g.Needs = slices.DeleteFunc(l.distinctStages(s, g.needs), func(n *Stage) bool { return slices.Contains(s.Needs, n) })
	}
}

// connectInputs finds what the stage's inputs need.
func (l *loader) connectInputs(s *Stage) {
	for _, name := range slices.Sorted(maps.Keys(s.bindings)) {
		b := s.bindings[name]
		if b.expr == nil {
			continue
		}
		needs, good := l.follow(s, b.expr, site{what: "input " + name, input: true})
		b.needs = needs
		if !good {
			b.expr, b.value = nil, cty.UnknownVal(s.Variables[name].Type)
		}
	}
}

func (l *loader) blockNeeds(s *Stage, b *block) []need {
	var needs []need
	for _, name := range slices.Sorted(maps.Keys(b.args)) {
		more, good := l.follow(s, b.args[name], site{what: b.name() + ": " + name, gate: b.kind == "gate"})
		needs = append(needs, more...)
		if !good {
			b.args[name] = hcl.StaticExpr(cty.DynamicVal, b.args[name].Range())
		}
	}
	return needs
}

// layerNeeds returns every enabled stage of the named layers.
func (l *loader) layerNeeds(s *Stage, who string, names []layerName) []need {
	var needs []need
	for _, n := range names {
		switch index := layerIndex(n.name); {
		case index < 0:
			l.report(problem(n.at, who+": needs unknown layer "+n.name, "The layers are %s%s", strings.Join(Layers(), ", "), orStop(DidYouMean(n.name, Layers()))))
			continue
		case index == layerIndex(s.Layer):
			l.report(problem(n.at, who+": needs its own layer", "Inside layer %s, order comes from outputs: wire an input to %s.<output> of the stage that comes first.", s.Layer, s.Layer))
			continue
		case index > layerIndex(s.Layer):
			l.report(problem(n.at, who+": needs the later layer "+n.name, "The order of layers is %s.", strings.Join(Layers(), ", ")))
			continue
		}
		for _, other := range l.cluster.Stages {
			if other.Layer == n.name {
				needs = append(needs, need{stage: other, at: n.at})
			}
		}
	}
	return needs
}

// connectPlatform adds the edges to whichever stage tells castle how to reach
// the cluster: for generated providers and for gates.
func (l *loader) connectPlatform(s *Stage) {
	for _, address := range s.InCluster {
		s.NeedsPlatform = true
		what := fmt.Sprintf("stage %s: provider %s", s.Name, address)
		owner := l.platformOutput(s, "kubeconfig", what, s.entry.at)
		if owner == s {
			l.report(problem(s.entry.at, what+" would need the stage's own kubeconfig",
				"castle configures the provider from platform.kubeconfig, which this stage itself has. Configure the provider in %s.", s.Source))
		}
	}
	for _, g := range s.Gates {
		what := fmt.Sprintf("stage %s: gate %s", s.Name, g.Name())
		if g.Type.Kubernetes {
			s.NeedsPlatform = true
			l.platformOutput(s, "kubeconfig", what, g.block.at)
		}
		if g.Type.Talos {
			s.NeedsPlatform = true
			l.platformOutput(s, "talosconfig", what, g.block.at)
		}
	}
}

// platformOutput returns the stage that has the platform's output, and makes
// it a need of s unless it is s.
func (l *loader) platformOutput(s *Stage, output, what string, at hcl.Range) *Stage {
	owner := l.cluster.owners["platform"][output]
	switch {
	case layerIndex(s.Layer) < layerIndex("platform"):
		l.report(problem(at, what+" needs the platform", "Stage %s is of layer %s, which comes before the platform.", s.Name, s.Layer))
		return nil
	case owner == nil && !l.partial["platform"]:
		l.report(problem(at, what+" needs platform."+output, "castle connects it with this output. %s", l.whence("platform", output)))
	case owner != nil && owner != s:
		s.needs = append(s.needs, need{stage: owner, at: at, reads: "platform." + output, connects: true})
	}
	return owner
}

// distinctStages returns the stages of needs without s, each once, in the cluster's order.
func (l *loader) distinctStages(s *Stage, needs []need) []*Stage {
	var stages []*Stage
	for _, other := range l.cluster.Stages {
		if other != s && slices.ContainsFunc(needs, func(n need) bool { return n.stage == other }) {
			stages = append(stages, other)
		}
	}
	return stages
}
