package config

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/zclconf/go-cty/cty"

	"github.com/ephemeral-castle/castle/internal/outline"
	"github.com/ephemeral-castle/castle/internal/survivor"
	"github.com/ephemeral-castle/castle/internal/syntax"
)

// reference is a name in an expression: secrets.git_token.
type reference struct {
	root, name string // name is "" where the expression uses the root as a whole
	at         hcl.Range
}

// references lists the names in expr, in the order of its text.
func references(expr hcl.Expression) []reference {
	var refs []reference
	for _, t := range expr.Variables() {
		r := reference{root: t.RootName(), at: t.SourceRange()}
		if len(t) > 1 {
			switch step := t[1].(type) {
			case hcl.TraverseAttr:
				r.name = step.Name
			case hcl.TraverseIndex:
				if step.Key.Type() == cty.String {
					r.name = step.Key.AsString()
				}
			}
		}
		refs = append(refs, r)
	}
	return refs
}

// site is the place of an expression, which decides the names that it may use.
type site struct {
	of    string // "input namespace", "gate nodes.ready: count"
	input bool   // var reaches only variables that are not wired themselves; survives is known
	gate  bool   // self is known
}

// references checks every name in an expression, and returns the stages whose outputs
// it reads. It is false where a name is wrong: the expression cannot be evaluated then.
func (c *connector) references(s *Stage, expr hcl.Expression, at site) ([]need, bool) {
	var needs []need
	ok := true
	for _, r := range references(expr) {
		if d := c.check(s, r, at); d != nil {
			c.load.diags.report(d)
			ok = false
			continue
		}
		owner := c.load.cluster.owners[r.root][r.name]
		switch {
		case r.root == "var" && s.bindings[r.name] == nil:
			ok = false // a file of the module could not be read
		case r.root == "var" && !at.input:
			needs = append(needs, s.bindings[r.name].needs...)
		case owner != nil:
			needs = append(needs, need{stage: owner, at: r.at, reads: r.root + "." + r.name})
		case layerIndex(r.root) >= 0, r.root == "self" && s.definition.incomplete:
			ok = false // check has noted it, or the layer could not be read
		}
	}
	return needs, ok
}

// check reports a wrong name, except for an output that no stage has: it notes that for reportAbsent.
func (c *connector) check(s *Stage, r reference, at site) *hcl.Diagnostic {
	name, file := r.root+"."+r.name, c.load.file("cluster.hcl")
	wrong := func(what, detail string, args ...any) *hcl.Diagnostic {
		return syntax.Problem(r.at, fmt.Sprintf("stage %s: %s: %s", s.Name, at.of, what), detail, args...)
	}
	roots := append([]string{"var", "self", "cluster", "survives"}, Layers()...)
	if r.root == "stage" {
		return wrong("unknown name stage", "Write the layer and the output, such as platform.vip.")
	}
	if !slices.Contains(roots, r.root) {
		return wrong("unknown name "+r.root,
			"An expression may name var, cluster, a layer, in a gate self, and in an input survives%s",
			syntax.Hint(r.root, roots))
	}
	if r.name == "" {
		return wrong(r.root+" as a whole", "Name one of its values: %s.<name>.", r.root)
	}
	_, own := s.Outputs[r.name]
	binding := s.bindings[r.name]
	owner := c.load.cluster.owners[r.root][r.name]
	parts := []string{"name", "platform"} // of cluster
	switch {
	case r.root == "survives":
		if detail := s.checkBirth(r, at); detail != "" {
			return wrong("unknown "+name, "%s", detail)
		}
	case r.root == "cluster" && !slices.Contains(parts, r.name):
		return wrong("unknown "+name, "There are cluster.name and cluster.platform%s",
			syntax.Hint(r.name, parts))
	case r.root == "self" && !at.gate:
		return wrong("self is not known here", "A stage's own outputs are known to its gates only.")
	case r.root == "self" && s.Delegate != nil:
		return wrong(name+" is not known",
			"Stage %s is disabled at %s, so it is not applied and has no outputs. Name a variable of it "+
				"instead, or write the argument anew in its block of %s.", s.Name, syntax.Place(s.entry.At),
			file)
	case r.root == "self" && !own && !s.definition.incomplete:
		return wrong("unknown "+name, "The module %s has no such output%s", s.Source,
			syntax.Hint(r.name, slices.Collect(maps.Keys(s.Outputs))))
	case r.root == "var" && binding == nil && s.definition.incomplete:
		return nil
	case r.root == "var" && binding == nil:
		return wrong("unknown "+name, "The module %s declares no such variable%s", s.Source,
			syntax.Hint(r.name, slices.Collect(maps.Keys(s.Variables))))
	case r.root == "var" && at.input && binding.Value == cty.NilVal:
		return wrong(name+" is an input itself",
			"Inputs can name only variables that no inputs set; repeat the expression that sets %s.", name)
	case layerIndex(r.root) > layerIndex(s.Layer):
		return wrong(name+" belongs to a later layer",
			"Stage %s is of layer %s; references point to the same or an earlier layer. The order is %s.",
			s.Name, s.Layer, strings.Join(Layers(), ", "))
	case own && r.root == s.Layer:
		return wrong(name+" is the stage's own output",
			"It is known only after the stage. A gate names it self.%s.", r.name)
	case layerIndex(r.root) >= 0 && owner == nil && !c.load.partial[r.root]:
		detail := c.outputHint(r.root, r.name)
		if maker := c.disabled(r.root, r.name); maker != nil && s.Delegate == nil {
			detail += fmt.Sprintf(" Enable it; or disable %s, too, so that the system that installs %s "+
				"installs both; or write the value itself in the block of %s in %s.", s.Name, maker.Name,
				s.Name, file)
		} else if maker != nil {
			detail += fmt.Sprintf(" Write the value itself in the block of %s in %s.", s.Name, file)
		}
		c.absent = append(c.absent,
			absence{s, r.root, r.name, false, wrong("unknown output "+name, "%s", detail)})
	}
	return nil
}

// outputHint explains which stage would provide an output that no enabled stage has.
func (c *connector) outputHint(layer, output string) string {
	if s := c.disabled(layer, output); s != nil {
		return fmt.Sprintf("Stage %s has it, but is disabled at %s.", s.Name, syntax.Place(s.entry.At))
	}
	if sources := c.load.library.provides(layer, output); len(sources) > 0 {
		return fmt.Sprintf("No enabled stage has it. Add to %s: %s.", c.load.file("cluster.hcl"),
			outline.Blocks(sources))
	}
	outputs := slices.Sorted(maps.Keys(c.load.cluster.owners[layer]))
	if len(outputs) == 0 {
		return fmt.Sprintf("No stage of layer %s has it, enabled or not.", layer)
	}
	if similar := syntax.DidYouMean(output, outputs); similar != "" {
		return fmt.Sprintf("No stage of layer %s has it%s", layer, similar)
	}
	return fmt.Sprintf("No stage of layer %s has it; its outputs are %s.", layer, strings.Join(outputs, ", "))
}

// disabled returns the disabled stage that has an output; nil if none has.
func (c *connector) disabled(layer, output string) *Stage {
	for _, s := range c.load.cluster.Disabled {
		if _, ok := s.Outputs[output]; ok && s.Layer == layer {
			return s
		}
	}
	return nil
}

// Scope is the outputs that are known when an expression is evaluated.
type Scope struct {
	Outputs map[string]map[string]cty.Value // by layer, merged from its stages
	Self    map[string]cty.Value            // the stage's own outputs, for gates
	Births  survivor.Births                 // of the stage's data, by the labels of their blocks

	unknown bool // every other output is unknown, which is no error
}

// Inputs returns the value of every variable that has one. An output that sc lacks is an error.
func (s *Stage) Inputs(sc Scope) (map[string]cty.Value, hcl.Diagnostics) {
	var diags, more hcl.Diagnostics
	inputs := make(map[string]cty.Value, len(s.bindings))
	for name := range s.bindings {
		inputs[name], more = s.input(name, sc)
		diags = append(diags, more...)
	}
	return inputs, syntax.InOrder(syntax.Distinct(diags))
}

// KnownInputs returns the values of the variables as far as they follow from known outputs and births. Data
// without a birth count as new.
func (s *Stage) KnownInputs(outputs map[string]map[string]cty.Value,
	births survivor.Births) map[string]cty.Value {
	// Load has reported what is wrong.
	inputs, _ := s.Inputs(Scope{Outputs: outputs, Births: births, unknown: true})
	return inputs
}

// input returns the value of one variable.
func (s *Stage) input(name string, sc Scope) (cty.Value, hcl.Diagnostics) {
	b, v := s.bindings[name], s.Variables[name]
	if b.Value != cty.NilVal {
		return b.Value, nil
	}
	x, diags := s.evaluate(b.expr, sc)
	if diags.HasErrors() {
		return cty.UnknownVal(v.Type), diags
	}
	settled, err := v.Settle(x)
	if err != nil {
		if misfits := b.misfits(fmt.Sprintf("stage %s: input %s: ", s.Name, name), v); len(misfits) > 0 {
			return cty.UnknownVal(v.Type), misfits
		}
		summary := fmt.Sprintf("stage %s: unsuitable input %s", s.Name, name)
		return cty.UnknownVal(v.Type), hcl.Diagnostics{syntax.Problem(b.expr.Range(), summary, "%s.", err)}
	}
	return settled, nil
}

// evaluate returns the value of an expression whose references are checked. It looks
// up the names of the expression alone, so that it works as soon as those are known.
func (s *Stage) evaluate(expr hcl.Expression, sc Scope) (cty.Value, hcl.Diagnostics) {
	var diags hcl.Diagnostics
	found := make(map[string]map[string]cty.Value)
	for _, r := range references(expr) {
		var v cty.Value
		var more hcl.Diagnostics
		switch r.root {
		case "cluster":
			continue
		case "var":
			v, more = s.input(r.name, sc)
		case "self":
			v, more = s.output(r, sc.Self, sc, s)
		case "survives":
			v, more = s.birth(r, sc)
		default:
			v, more = s.output(r, sc.Outputs[r.root], sc, s.cluster.owners[r.root][r.name])
		}
		diags = append(diags, more...)
		if found[r.root] == nil {
			found[r.root] = make(map[string]cty.Value)
		}
		found[r.root][r.name] = v
	}
	if diags.HasErrors() {
		return cty.DynamicVal, diags
	}
	ctx := s.cluster.context()
	for root, names := range found {
		ctx.Variables[root] = cty.ObjectVal(names)
	}
	v, diags := expr.Value(ctx)
	return v, syntax.Plain(diags)
}

// output looks up the output that r names among the known ones of sc.
func (s *Stage) output(r reference, known map[string]cty.Value, sc Scope,
	owner *Stage) (cty.Value, hcl.Diagnostics) {
	v, ok := known[r.name]
	if ok && (sc.unknown || v.IsWhollyKnown()) {
		return v, nil
	}
	if sc.unknown {
		return cty.DynamicVal, nil
	}
	d := syntax.Problem(r.at, fmt.Sprintf("stage %s: %s.%s is not known", s.Name, r.root, r.name),
		"It is an output of stage %s, which has not been applied or does not set it.", owner.Name)
	return cty.DynamicVal, hcl.Diagnostics{d}
}

// context returns the values and functions that every expression may use.
func (c *Cluster) context() *hcl.EvalContext {
	return &hcl.EvalContext{
		Functions: syntax.FunctionsIn(c.Dir+"/../../..", c.Dir),
		Variables: map[string]cty.Value{"cluster": cty.ObjectVal(map[string]cty.Value{
			"name":     cty.StringVal(c.Name),
			"platform": cty.StringVal(c.Platform),
		})},
	}
}
