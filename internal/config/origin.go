package config

import (
	"cmp"
	"maps"
	"slices"
	"strconv"

	"github.com/hashicorp/hcl/v2"
	"github.com/zclconf/go-cty/cty"
)

// Written is a value and its place in a file.
type Written struct {
	Name  string    // of the variable
	Value cty.Value // unknown as far as it depends on outputs

	at   hcl.Range      // of the name, or of a value in no file: --var vip
	expr hcl.Expression // nil for a default or a text
}

// Repetition is a key that an object has twice: the second hides the first.
type Repetition struct {
	Key           string
	First, Second hcl.Range
}

// At returns the place of the value. Steps lead to a part of it, keys of objects and
// positions in lists: At("cp-01", "address"). A part without a place of its own has that
// of the nearest whole.
func (w Written) At(steps ...string) hcl.Range {
	at, _ := w.find(steps)
	return at
}

// Range returns the place of a whole expression.
func (w Written) Range(steps ...string) hcl.Range {
	at, expr := w.find(steps)
	if expr == nil {
		return at
	}
	return expr.Range()
}

func (w Written) find(steps []string) (hcl.Range, hcl.Expression) {
	at, expr := w.at, w.expr
	for _, step := range steps {
		var found bool
		if at, expr, found = part(at, expr, step); !found {
			break
		}
	}
	return at, expr
}

func part(at hcl.Range, expr hcl.Expression, step string) (hcl.Range, hcl.Expression, bool) {
	if expr == nil {
		return at, nil, false
	}
	if pairs, diags := hcl.ExprMap(expr); !diags.HasErrors() {
		for _, kv := range slices.Backward(pairs) { // of equal keys the last one counts
			if key(kv.Key) == step {
				return kv.Key.Range(), kv.Value, true
			}
		}
		return at, nil, false
	}
	elements, diags := hcl.ExprList(expr)
	i, err := strconv.Atoi(step)
	if diags.HasErrors() || err != nil || i < 0 || i >= len(elements) {
		return at, nil, false
	}
	return start(elements[i].Range()), elements[i], true
}

// start shortens a range that takes several lines, such as a heredoc, to its beginning.
func start(at hcl.Range) hcl.Range {
	if at.End.Line != at.Start.Line {
		at.End = at.Start
	}
	return at
}

// key returns an object's key, or "" where it is no constant.
func key(expr hcl.Expression) string {
	v, diags := expr.Value(nil)
	if diags.HasErrors() || !v.IsKnown() || v.IsNull() || v.Type() != cty.String {
		return ""
	}
	return v.AsString()
}

// Repetitions returns the keys that an object of the value has twice, at any depth.
func (w Written) Repetitions() []Repetition { return repetitions(w.expr) }

func repetitions(expr hcl.Expression) []Repetition {
	if expr == nil {
		return nil
	}
	var all []Repetition
	parts, _ := hcl.ExprList(expr) // an error: it is no list
	if pairs, diags := hcl.ExprMap(expr); !diags.HasErrors() {
		seen := make(map[string]hcl.Range)
		for _, kv := range pairs {
			name := key(kv.Key)
			if first, twice := seen[name]; twice && name != "" {
				all = append(all, Repetition{Key: name, First: first, Second: kv.Key.Range()})
			}
			seen[name] = kv.Key.Range()
			parts = append(parts, kv.Value)
		}
	}
	for _, p := range parts {
		all = append(all, repetitions(p)...)
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
	v, _ := s.input(variable, s.unknownScope()) // Load has reported what is wrong
	w := b.written
	w.Name, w.Value = variable, v
	return w
}

// Committed returns the values in the files that belong into Git: terraform.tfvars, defaults in castle.hcl
// and inputs in cluster.hcl. It includes values that no stage uses.
func (c *Cluster) Committed() []Written { return c.committed }

// committedValues collects the values for Cluster.Committed.
func (r *inputValues) committedValues(plain, defaults map[string]value) []Written {
	var all []Written
	for _, values := range []map[string]value{plain, defaults} {
		for name, x := range values {
			w := x.written
			w.Name, w.Value = name, x.value
			all = append(all, w)
		}
	}
	for _, s := range slices.Concat(r.load.cluster.Stages, r.load.cluster.Disabled) {
		for name, in := range s.entry.settings.inputs {
			v, diags := in.expr.Value(r.load.cluster.context())
			if diags.HasErrors() {
				v = cty.DynamicVal // it names an output
			}
			all = append(all, Written{Name: name, Value: v, at: in.at, expr: in.expr})
		}
	}
	slices.SortFunc(all, func(a, b Written) int {
		return cmp.Or(cmp.Compare(a.at.Filename, b.at.Filename),
			cmp.Compare(a.at.Start.Byte, b.at.Start.Byte), cmp.Compare(a.Name, b.Name))
	})
	return all
}

// TerraformFiles returns the module's parsed Terraform files, by name.
func (s *Stage) TerraformFiles() []*hcl.File {
	var files []*hcl.File
	for _, name := range slices.Sorted(maps.Keys(s.definition.files)) {
		files = append(files, s.definition.files[name])
	}
	return files
}

// Default returns the variable's default, and false where it has none.
func (v Variable) Default() (cty.Value, bool) { return v.fallback, !v.Required }

// Declared is where the module declares the variable.
func (v Variable) Declared() hcl.Range { return v.declared }
