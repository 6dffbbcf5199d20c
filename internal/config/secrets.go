package config

import (
	"maps"
	"slices"

	"github.com/zclconf/go-cty/cty"
)

// Secrets returns every string that is secret before anything has run: what
// secrets.tfvars holds and what sensitive variables are given. A value counts
// for all stages: another one may take it without calling it sensitive.
func (c *Cluster) Secrets() []string {
	found := make(map[string]bool)
	for _, v := range c.secrets {
		collect(found, v.value)
	}
	for _, s := range c.Stages {
		inputs, _ := s.Inputs(s.beforehand()) // Load has reported what is wrong
		for name, v := range inputs {
			if s.Variables[name].Sensitive {
				collect(found, v)
			}
		}
	}
	return slices.Sorted(maps.Keys(found))
}

// collect puts every known string inside v, at any depth, into found.
func collect(found map[string]bool, v cty.Value) {
	cty.Walk(v, func(_ cty.Path, v cty.Value) (bool, error) { //nolint:errcheck // the function returns none
		if v.Type() == cty.String && v.IsKnown() && !v.IsNull() {
			found[v.AsString()] = true
		}
		return true, nil
	})
}
