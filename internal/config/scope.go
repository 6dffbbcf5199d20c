package config

import (
	"github.com/hashicorp/hcl/v2"
	"github.com/zclconf/go-cty/cty"

	"github.com/ephemeral-castle/castle/internal/gate"
)

// Scope is what is known when an expression is evaluated.
type Scope struct {
	Outputs map[string]map[string]cty.Value // layer: the merged outputs of its stages, as far as they are known
	Self    map[string]cty.Value            // the stage's own outputs, for gates
}

// Inputs returns the value of every variable that has one. A layer's output
// that sc lacks is an error that names the stage and the output.
func (s *Stage) Inputs(sc Scope) (map[string]cty.Value, hcl.Diagnostics) { return nil, nil }

// Values returns the preflight's arguments for stage s.
func (p *Preflight) Values(s *Stage, sc Scope) (gate.Values, hcl.Diagnostics) { return nil, nil }

// ID returns the import id of the resource for stage s.
func (a *Adopt) ID(s *Stage, sc Scope) (string, hcl.Diagnostics) { return "", nil }

// Values returns the gate's arguments for stage s.
func (g *Gate) Values(s *Stage, sc Scope) (gate.Values, hcl.Diagnostics) { return nil, nil }

// Strings returns every string in the cluster's known values, nested ones too,
// sorted and each once. The lab finds addresses and hosts there.
func (c *Cluster) Strings() []string { return nil }
