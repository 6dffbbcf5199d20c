package check

import (
	"cmp"
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/zclconf/go-cty/cty"

	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/syntax"
	"github.com/ephemeral-castle/castle/internal/tfeval"
)

// contract is the library's stage whose validations hold for the variables of these names in every stage.
const contract = "platform/proxmox-machines"

// checkValidations evaluates the `validation` blocks of every variable. For the user's own stages that lack
// them, it adds those of the contract that are rules.
func checkValidations(c *cluster, report reporter) {
	reported := map[string]bool{} // several stages may share a variable
	shared := map[string]cty.Value{}
	outputs := maps.Clone(c.outputs())
	delete(outputs, "secrets") // a new cluster's are empty until somebody fills them in
	for _, s := range c.config.Stages {
		values := s.KnownInputs(outputs, nil)
		for name := range s.Variables {
			shared[name] = c.variable(name).Value
		}
		for _, f := range rootCauses(tfeval.Read(s, values).FailedValidations()) {
			c.invalid[f.Variable] = true
			unset := strings.HasSuffix(s.Written(f.Variable).At().Filename, ".tf")
			if !slices.ContainsFunc(f.Reads, c.hasRepetition) && !(c.damaged && unset) {
				invalid{c, f, validationRule(f.Reads), s.Name, s.Written}.report(report, reported)
			}
		}
	}
	library := tfeval.ReadContract(c.options.Library, contract, shared)
	for _, f := range rootCauses(library.FailedValidations()) {
		r := validationRule(f.Reads)
		if r.Kind != validation && !slices.ContainsFunc(f.Reads, c.hasRepetition) {
			invalid{c, f, r, contract, c.variable}.report(report, reported)
		}
	}
}

// hasRepetition reports whether a value, such as nodes.role, is of a variable with a key twice.
func (c *cluster) hasRepetition(read string) bool {
	name, _, _ := strings.Cut(read, ".")
	return slices.ContainsFunc(c.config.Committed(), func(w config.Written) bool {
		return w.Name == name && len(w.Repetitions()) > 0
	})
}

// rootCauses drops a failure where another validation of fewer of its values fails: an address that is none
// lies in no network either.
func rootCauses(all []tfeval.Failure) []tfeval.Failure {
	var causes []tfeval.Failure
	for _, f := range all {
		follows := func(element string) bool {
			return slices.ContainsFunc(all, func(cause tfeval.Failure) bool {
				fewer := len(cause.Reads) < len(f.Reads) && !slices.ContainsFunc(cause.Reads,
					func(read string) bool { return !slices.Contains(f.Reads, read) })
				return fewer && (element == "" || len(cause.Elements) == 0 ||
					slices.Contains(cause.Elements, element))
			})
		}
		if len(f.Elements) == 0 && follows("") {
			continue
		}
		elements, others := f.Elements, f.Others
		f.Elements, f.Others = nil, nil
		for i, element := range elements {
			if follows(element) {
				continue
			}
			f.Elements = append(f.Elements, element)
			if len(others) > 0 {
				f.Others = append(f.Others, others[i])
			}
		}
		if len(f.Elements) > 0 || len(elements) == 0 {
			causes = append(causes, f)
		}
	}
	return causes
}

// invalid is a failed validation and where its values are written.
type invalid struct {
	cluster *cluster
	failure tfeval.Failure
	rule    Rule
	stage   string
	written func(variable string) config.Written
}

// report reports each element that fails, or the variable as a whole.
func (x invalid) report(report reporter, reported map[string]bool) {
	f, r := x.failure, x.rule
	elements, others := f.Elements, f.Others
	if len(elements) == 0 {
		elements = []string{""}
	}
	if len(others) == 0 {
		others = elements
	}
	for i, element := range elements {
		at, object := x.place(element)
		summary, detail := strings.ReplaceAll(r.summary, "%s", others[i]), f.Message
		key := fmt.Sprint(r.Kind, at)
		if r.Kind == validation {
			object, summary = "variable "+f.Variable, strings.TrimPrefix(element+" is not valid", " is ")
			if _, err := strconv.Atoi(element); err == nil { // of a list, which may be another variable
				summary = "not valid"
				if x.written(f.Variable).Value.Type().IsListType() {
					object += "[" + element + "]"
				}
			}
			key = fmt.Sprint(r.Kind, f.Message, object, summary) // stages may wire one value alike
			if values := x.values(at, element); len(values) == 1 && len(f.Reads) == 1 && len(f.Allowed) > 0 {
				_, value, _ := strings.Cut(values[0], " is ")
				detail += " Here, " + values[0] + "."
				if near := syntax.DidYouMean(value, f.Allowed); near != "" {
					detail = "D" + strings.TrimPrefix(near, "; d") + " " + detail
				}
			}
			if c := x.cluster.config; x.written(f.Variable).NamesCluster() {
				at = hcl.Range{Filename: path.Join("clusters", c.Name)}
				detail += " This folder names the cluster: rename it."
			}
		} else if values := x.values(at, element, others[i]); len(values) > 0 {
			detail += " Here, " + strings.Join(values, ", ") + ". " + r.fix
		}
		if !reported[key] {
			reported[key] = true
			report(r.Kind, at, object+": "+summary, "%s This is a validation of stage %s, %s.", detail,
				x.stage, syntax.Place(f.At))
		}
	}
}

// place is where the mistake is written, and its name: a variable that is a single
// value, or else the element, or the collection.
func (x invalid) place(element string) (hcl.Range, string) {
	f := x.failure
	own := x.written(f.Variable)
	if element == "" || own.Value.Type().IsPrimitiveType() {
		var steps []string
		if len(f.Reads) == 1 { // it is a matter of one attribute
			steps = strings.Split(f.Reads[0], ".")[1:]
		}
		return own.At(steps...), f.Variable
	}
	steps := []string{element}
	for _, read := range f.Reads {
		if of, attribute, ok := strings.Cut(read, "."); ok && of == f.Collection {
			steps = append(steps, attribute)
		}
	}
	if len(steps) > 2 { // it is a matter of several attributes
		steps = steps[:1]
	}
	return x.written(f.Collection).At(steps...), strings.TrimSuffix(f.Collection, "s") + " " + element
}

// values are the single values that the condition reads, of all elements if none fails by
// itself. Each has its place unless that is at.
func (x invalid) values(at hcl.Range, elements ...string) []string {
	var all []string
	for _, read := range x.failure.Reads {
		steps := strings.Split(read, ".")
		w := x.written(steps[0])
		of := []string{""}
		if w.Value.Type().IsMapType() {
			if of = elements; x.failure.Collection == "" {
				of = names(tfeval.Map(w.Value))
			}
		}
		for _, element := range of {
			path := slices.Clone(steps[1:])
			if element != "" {
				path = append([]string{element}, path...)
			}
			v := w.Value
			for _, step := range path {
				v = tfeval.Map(v)[step]
			}
			text := strings.Join(append(steps[:1:1], path...), ".") + " is " + tfeval.Printed(v)
			if place := syntax.Place(w.At(path...)); place != syntax.Place(at) {
				text += " (" + place + ")"
			}
			if tfeval.Printed(v) != "" && !x.cluster.sensitive(w.Name) && !slices.Contains(all, text) {
				all = append(all, text)
			}
		}
	}
	return all
}

// checkProviders finds resources whose provider Terraform would guess to be
// hashicorp's: kubectl_manifest means hashicorp/kubectl, which does not exist.
func checkProviders(c *cluster, report reporter) {
	for _, s := range c.config.Stages {
		m := tfeval.Read(s, nil)
		var named []string
		for _, b := range m.Blocks {
			for _, inner := range b.Body.Blocks {
				if b.Type == "terraform" && inner.Type == "required_providers" {
					named = append(named, names(inner.Body.Attributes)...)
				}
			}
		}
		slices.Sort(named)
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
			report("provider-unnamed", b.DefRange(), fmt.Sprintf(
				"stage %s: %s belongs to a provider that is not named", s.Name, strings.Join(b.Labels, ".")),
				"required_providers names %s, so Terraform would install hashicorp/%s, of any version. "+
					"Add %s = { source = \"…\", version = \"…\" } to required_providers of %s.",
				cmp.Or(strings.Join(named, ", "), "none"), provider, provider, s.Source)
		}
	}
}
