package config

import (
	"maps"
	"slices"
	"strconv"

	"github.com/hashicorp/hcl/v2"
	"github.com/siderolabs/gen/xslices"
	"github.com/zclconf/go-cty/cty"

	"github.com/ephemeral-castle/castle/internal/syntax"
)

// Written is a value and its place in a file.
type Written struct {
	Name  string    // of the variable
	Value cty.Value // unknown as far as it depends on outputs

	at    hcl.Range      // of the name, or of a value in no file: --var vip
	expr  hcl.Expression // nil for a default or a text
	text  bool           // Value is a text, to be parsed by the variable's type
	needs []need         // the stages whose outputs expr reads

	broken bool // Load has reported it, or that it is missing
}

// Repetition is a key that an object has twice: the second hides the first.
type Repetition struct {
	Key           string
	First, Second hcl.Range
}

// At returns the place of the value. Steps lead to a part of it, keys of objects and positions in lists:
// At("cp-01", "address"). A part without a place of its own has that of the nearest whole.
func (w Written) At(steps ...string) hcl.Range {
	return w.part(steps).at
}

// Range returns the place of a whole expression.
func (w Written) Range(steps ...string) hcl.Range {
	p := w.part(steps)
	if p.expr == nil {
		return p.at
	}
	return p.expr.Range()
}

func (w Written) part(steps []string) Written {
	for _, step := range steps {
		all := parts(w.expr)
		i := slices.IndexFunc(all, func(p Written) bool { return p.Name == step })
		if i < 0 {
			return Written{at: w.at}
		}
		w = all[i]
	}
	return w
}

// parts are the elements of an object or a list, by key or position. Of equal keys the last one counts, and
// comes first. A key that is no constant has no name.
func parts(expr hcl.Expression) []Written {
	if expr == nil {
		return nil
	}
	var all []Written
	if pairs, diags := hcl.ExprMap(expr); !diags.HasErrors() {
		for _, kv := range slices.Backward(pairs) {
			name, _ := kv.Key.Value(nil) // an error: it is unknown
			all = append(all, Written{Name: syntax.Text(name), at: kv.Key.Range(), expr: kv.Value})
		}
	}
	elements, _ := hcl.ExprList(expr) // an error: it is no list
	for i, e := range elements {
		at := e.Range()
		if at.End.Line != at.Start.Line { // of a heredoc, the beginning
			at.End = at.Start
		}
		all = append(all, Written{Name: strconv.Itoa(i), at: at, expr: e})
	}
	return all
}

// Repetitions returns the keys that an object of the value has twice, at any depth.
func (w Written) Repetitions() []Repetition {
	var all []Repetition
	after := make(map[string]hcl.Range)
	for _, p := range parts(w.expr) {
		if second, twice := after[p.Name]; twice && p.Name != "" {
			all = append(all, Repetition{Key: p.Name, First: p.at, Second: second})
		}
		after[p.Name] = p.at
		all = append(all, p.Repetitions()...)
	}
	return all
}

// Written returns the value of a variable of the stage, as far as it is known before a
// run, and its place. The place of a default is that of the variable's declaration.
func (s *Stage) Written(variable string) Written {
	b, ok := s.bindings[variable]
	if !ok {
		return Written{Name: variable, Value: cty.DynamicVal}
	}
	w := *b
	w.Value, _ = s.input(variable, Scope{unknown: true}) // Load has reported what is wrong
	return w
}

// NamesCluster reports whether the value is made of the cluster's name.
func (w Written) NamesCluster() bool {
	return w.expr != nil && slices.ContainsFunc(references(w.expr),
		func(r reference) bool { return r.root == "cluster" })
}

// Sound reports whether Load has found no fault in the values of the stage's variables.
func (s *Stage) Sound() bool {
	return !slices.ContainsFunc(slices.Collect(maps.Values(s.bindings)), func(w *Written) bool {
		return w.broken
	})
}

// Committed returns the values in the files that belong into Git, in no order: terraform.tfvars, shared
// values, defaults in castle.hcl and inputs in cluster.hcl. It includes values that no stage uses.
func (c *Cluster) Committed() []Written { return c.committed }

// committedValues collects the values for Cluster.Committed.
func (r *inputValues) committedValues(layers []layer) (all []Written) {
	for _, y := range layers {
		all = slices.AppendSeq(all, maps.Values(y.values))
	}
	for _, s := range slices.Concat(r.load.cluster.Stages, r.load.cluster.Disabled) {
		for _, in := range s.entry.settings.inputs {
			v, diags := in.expr.Value(r.load.cluster.context())
			if in.Value = v; diags.HasErrors() {
				in.Value = cty.DynamicVal // it names an output
			}
			all = append(all, in)
		}
	}
	return all
}

// TerraformFiles returns the module's parsed Terraform files, by name; none where one of them cannot be read.
func (s *Stage) TerraformFiles() []*hcl.File {
	if s.definition.incomplete {
		return nil
	}
	return xslices.Map(slices.Sorted(maps.Keys(s.definition.files)),
		func(name string) *hcl.File { return s.definition.files[name] })
}
