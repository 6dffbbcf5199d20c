package config

import (
	"slices"

	"github.com/hashicorp/hcl/v2"
	"github.com/siderolabs/gen/xslices"
	"github.com/zclconf/go-cty/cty"

	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/naming"
	"github.com/ephemeral-castle/castle/internal/survivor"
	"github.com/ephemeral-castle/castle/internal/syntax"
)

// Survivor is a survives block: data that outlive the cluster.
type Survivor struct {
	Type  survivor.Type
	Label string
	Needs []*Stage // whose outputs its arguments read
	block *block
	needs []need
}

// Edges are the reasons for each of Needs, in its order.
func (d *Survivor) Edges() []Edge { return edges(d.Needs, d.needs) }

// Values returns the block's arguments for stage s.
func (d *Survivor) Values(s *Stage, sc Scope) (gate.Values, hcl.Diagnostics) {
	return d.block.values(s, sc)
}

// addSurvivors gives a stage its data, and each of them its gate.
func (r *blockReader) addSurvivors(s *Stage) {
	for _, b := range s.entry.survives {
		t := findType(r, s, b, r.load.options.Survivors, func(t survivor.Type) string { return t.Name })
		if t == nil {
			continue
		}
		label := b.labels[1]
		if !naming.Suits(label) {
			r.load.diags.add(b.at, b.of(s)+": unsuitable name", "A name has %s.", naming.Rule)
			continue
		}
		own := b.overriddenBy(nil)
		r.setArguments(s, own, t.Attributes, t.Check, "timeout")
		s.Survivors = append(s.Survivors, &Survivor{Type: *t, Label: label, block: own})
		s.Gates = append(s.Gates, &Gate{Type: survivor.GateType(*t), Label: label, Of: s, block: own,
			OfData: true})
	}
}

// checkBirth returns why a stage does not know a name below survives; "" if it does.
func (s *Stage) checkBirth(r reference, at site) string {
	labels := xslices.Map(s.Survivors, func(d *Survivor) string { return d.Label })
	switch {
	case !at.input:
		return "Only inputs of a stage know how its data began."
	case !slices.Contains(labels, r.name):
		return "The stage has no survives block of this label" + syntax.Hint(r.name, labels)
	}
	return ""
}

// birth returns how the data that r names began.
func (s *Stage) birth(r reference, sc Scope) (cty.Value, hcl.Diagnostics) {
	if b, decided := sc.Births[r.name]; decided || sc.unknown {
		return b.Value(), nil
	}
	return cty.DynamicVal, hcl.Diagnostics{syntax.Problem(r.at, "stage "+s.Name+": survives."+r.name+" is "+
		"not known", "castle create decides it once for the life of the cluster.")}
}
