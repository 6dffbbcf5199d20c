package check

import (
	"fmt"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/convert"

	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/tfeval"
)

// contract is the library's stage whose validations hold for the variables of these
// names in every stage.
const contract = "platform/proxmox-talos"

// checkValidations evaluates the `validation` blocks of every variable, and those of the
// contract that are rules, for stages of the user's own that leave them out.
func checkValidations(c *cluster, report reporter) {
	reported := map[string]bool{} // several stages may share a variable
	shared := map[string]cty.Value{}
	for _, s := range c.config.Stages {
		values := map[string]cty.Value{}
		for name := range s.Variables {
			values[name] = s.Written(name).Value
			shared[name] = c.variable(name).Value
		}
		for _, f := range tfeval.Read(s, values).FailedValidations() {
			x := invalid{c, f, "stage " + s.Name, s.Written}
			x.report(report, validationRule(f.Reads), reported)
		}
	}
	if c.options.Library == nil {
		return
	}
	for _, f := range tfeval.ReadContract(c.options.Library, contract, shared).FailedValidations() {
		if r := validationRule(f.Reads); r.kind != validation {
			invalid{c, f, "stage " + contract, c.variable}.report(report, r, reported)
		}
	}
}

// invalid is a failed validation and where its values are written.
type invalid struct {
	cluster *cluster
	failure tfeval.Failure
	origin  string
	written func(variable string) config.Written
}

// report reports each element that fails, or the variable as a whole.
func (x invalid) report(report reporter, r rule, reported map[string]bool) {
	f := x.failure
	elements := f.Elements
	if len(elements) == 0 {
		elements = []string{""}
	}
	for i, element := range elements {
		other := element
		if len(f.Others) > 0 {
			other = f.Others[i]
		}
		at, object := x.place(element)
		summary := r.summary
		switch {
		case r.kind == validation && element != "":
			summary = element + " is not valid"
		case r.kind == validation:
			summary = "not valid"
		case strings.Contains(summary, "%s"):
			summary = fmt.Sprintf(summary, other)
		}
		if r.kind == validation {
			object = "variable " + f.Variable
		}
		key := fmt.Sprint(r.kind, at)
		if r.kind == validation {
			key += f.Message
		}
		if reported[key] {
			continue
		}
		reported[key] = true
		detail := f.Message
		if values := x.values(at, element, other); r.kind != validation && len(values) > 0 {
			detail += " Here, " + strings.Join(values, ", ") + "."
		}
		if r.fix != "" {
			detail += " " + r.fix
		}
		report(r.kind, at, object+": "+summary, "%s This is a validation of %s, %s.", detail, x.origin, where(f.At))
	}
}

// place is where the mistake is written, and its name: a variable that is a single
// value, or else the element, or the collection.
func (x invalid) place(element string) (hcl.Range, string) {
	f := x.failure
	own := x.written(f.Variable)
	if element == "" || own.Value.Type().IsPrimitiveType() {
		return own.At(), f.Variable
	}
	steps := []string{element}
	for _, read := range f.Reads {
		if of, attribute, ok := strings.Cut(read, "."); ok && of == f.Collection {
			steps = append(steps, attribute)
		}
	}
	if len(steps) > 2 {
		steps = steps[:1]
	}
	return x.written(f.Collection).At(steps...), strings.TrimSuffix(f.Collection, "s") + " " + element
}

// values are the values that the condition reads, with their places.
func (x invalid) values(at hcl.Range, elements ...string) []string {
	var all []string
	add := func(variable string, steps ...string) {
		w := x.written(variable)
		text := printed(w.Value, steps)
		if text == "" || x.cluster.sensitive(variable) {
			return
		}
		text = strings.Join(append([]string{variable}, steps...), ".") + " is " + text
		if place := w.At(steps...); where(place) != where(at) {
			text += " (" + where(place) + ")"
		}
		if !slices.Contains(all, text) {
			all = append(all, text)
		}
	}
	for _, read := range x.failure.Reads {
		steps := strings.Split(read, ".")
		variable, steps := steps[0], steps[1:]
		switch nodes := tfeval.Map(x.written(variable).Value); {
		case len(steps) == 0 || variable != x.failure.Collection && !x.written(variable).Value.Type().IsMapType():
			add(variable, steps...)
		case variable == x.failure.Collection:
			for _, element := range elements {
				add(variable, append([]string{element}, steps...)...)
			}
		default:
			for _, element := range names(nodes) {
				add(variable, append([]string{element}, steps...)...)
			}
		}
	}
	return all
}

// printed is a single value within another one; "" if it is none.
func printed(v cty.Value, steps []string) string {
	for _, step := range steps {
		if all := tfeval.Map(v); all != nil {
			v = all[step]
		}
	}
	if v == cty.NilVal || !v.Type().IsPrimitiveType() {
		return ""
	}
	v, err := convert.Convert(v, cty.String)
	if err != nil {
		return ""
	}
	return tfeval.Text(v)
}

// checkProviders finds resources whose provider Terraform would guess to be
// hashicorp's: kubectl_manifest means hashicorp/kubectl, which does not exist.
func checkProviders(c *cluster, report reporter) {
	for _, s := range c.config.Stages {
		m := tfeval.Read(s, nil)
		named := requiredProviders(m)
		for _, b := range m.Blocks {
			if (b.Type != "resource" && b.Type != "data" && b.Type != "ephemeral") || len(b.Labels) != 2 {
				continue
			}
			provider, _, _ := strings.Cut(b.Labels[0], "_")
			if attr, ok := b.Body.Attributes["provider"]; ok {
				if t, diags := hcl.AbsTraversalForExpr(attr.Expr); !diags.HasErrors() {
					provider = t.RootName()
				}
			}
			if provider == "terraform" || slices.Contains(named, provider) {
				continue // terraform_data is part of Terraform
			}
			listed := strings.Join(named, ", ")
			if listed == "" {
				listed = "none"
			}
			report("provider-unnamed", b.DefRange(),
				fmt.Sprintf("stage %s: %s belongs to a provider that is not named", s.Name, strings.Join(b.Labels, ".")),
				"required_providers names %s, so Terraform would install hashicorp/%s, of any version. "+
					"Add %s = { source = \"…\", version = \"…\" } to required_providers of %s.", listed, provider, provider, s.Source)
		}
	}
}

func requiredProviders(m *tfeval.Module) []string {
	var all []string
	for _, b := range m.Blocks {
		for _, inner := range b.Body.Blocks {
			if b.Type == "terraform" && inner.Type == "required_providers" {
				all = append(all, names(inner.Body.Attributes)...)
			}
		}
	}
	slices.Sort(all)
	return all
}
