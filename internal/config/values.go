package config

import (
	"cmp"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/siderolabs/gen/xslices"
	"github.com/zclconf/go-cty/cty"

	"github.com/ephemeral-castle/castle/internal/module"
	"github.com/ephemeral-castle/castle/internal/outline"
	"github.com/ephemeral-castle/castle/internal/syntax"
)

// inputValues reads the values from outside the stages, and binds the variables of
// stages to them. A value belongs to every variable of its name.
type inputValues struct {
	load       *loader
	above      []layer             // these override inputs; the strongest first
	below      []layer             // inputs override these
	missing    map[string][]*Stage // by variable without a value: the stages that require it
	meant      map[string]bool     // variables that a misspelled or unreadable name stands for
	undeclared []undeclared
	noFile     bool // there is no terraform.tfvars
}

const (
	ownFile       = "terraform.tfvars"         // of one cluster
	ofThisCluster = "No stage of this cluster" // declares the variable
)

// undeclared is a value that no stage of the cluster, or for a default of the library, declares.
type undeclared struct {
	value  Written
	stages string // that could: ofThisCluster
	near   string // `; did you mean "vip"?`, or ""
}

// textValue is a value of the command line or the environment.
func textValue(name, text, at string) Written {
	return Written{Name: name, Value: cty.StringVal(text), at: syntax.WholeFile(at), text: true}
}

// read reads the values, and reports names that no stage declares, except those in the
// environment, which other programs may use.
func (r *inputValues) read(inputs map[string]Written) {
	l, vars, environ := r.load, make(map[string]Written), make(map[string]Written)
	r.meant = make(map[string]bool)
	for name, text := range l.options.Vars {
		vars[name] = textValue(name, text, "--var "+name)
	}
	r.above = []layer{{values: vars}}
	for _, file := range slices.Backward(l.options.VarFiles) {
		f, diags := l.library.read(os.DirFS(filepath.Dir(file)), filepath.Base(file), file, false)
		l.diags.report(diags...)
		if f == nil && !diags.HasErrors() {
			l.diags.add(hcl.Range{}, "--var-file "+file+": no such file", "")
		}
		r.above = append(r.above, layer{values: r.assignments(f)})
	}
	for _, kv := range l.options.Environ {
		key, text, _ := strings.Cut(kv, "=")
		if name, ok := strings.CutPrefix(key, "TF_VAR_"); ok {
			environ[name] = textValue(name, text, key)
		}
	}
	given := slices.Clone(r.above)
	r.above = append(r.above, layer{values: environ})
	secrets, plain := layer{values: r.readSecrets()}, layer{values: r.readTfvars(l.file(""), ownFile, true)}
	shared := r.readShared()
	defaults := make(map[string]Written)
	for name, in := range inputs {
		defaults[name] = r.evaluate(in, l.cluster.context())
	}
	committed := append(append([]layer{plain}, shared...), layer{values: defaults})
	r.below = append([]layer{secrets}, committed...)
	l.cluster.above, l.cluster.below = r.above, r.below
	l.cluster.secrets, l.cluster.committed = secrets.values, r.committedValues(committed)

	declared := l.declared(slices.Concat(l.cluster.Stages, l.cluster.Disabled))
	if len(l.partial) == 0 {
		for _, own := range append(given, secrets, plain) {
			r.findUndeclared(own.values, declared, ofThisCluster)
		}
		for _, s := range shared {
			r.findUnshared(s, declared)
		}
	}
	unknown := func(name string) bool { return !declared[name] }
	if slices.ContainsFunc(slices.Collect(maps.Keys(defaults)), unknown) {
		for _, source := range l.library.sources() { // other clusters may have these stages
			maps.Copy(declared, l.declared([]*Stage{&l.library.definition(source).stage}))
		}
		r.findUndeclared(defaults, declared, "No stage")
	}
}

// declared returns the variables of stages.
func (l *loader) declared(stages []*Stage) map[string]bool {
	declared := make(map[string]bool)
	for _, s := range stages {
		for name := range s.Variables {
			declared[name] = true
		}
	}
	return declared
}

// findUndeclared notes values that no stage declares. A misspelled one is that of the variable that is meant.
func (r *inputValues) findUndeclared(values map[string]Written, declared map[string]bool, stages string) {
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if declared[name] {
			continue
		}
		x := undeclared{value: values[name], stages: stages}
		if !slices.ContainsFunc(r.load.library.sources(), r.declares(name)) {
			all := slices.Collect(maps.Keys(declared))
			x.near = syntax.DidYouMean(name, all)
			r.meant[syntax.Nearest(name, all)] = true
		}
		r.undeclared = append(r.undeclared, x)
	}
}

// declares returns whether a stage of the library declares a variable.
func (r *inputValues) declares(name string) func(source string) bool {
	return func(source string) bool {
		_, has := r.load.library.definition(source).stage.Variables[name]
		return has
	}
}

// reportUndeclared reports the values that no stage uses, except those of suggested stages, which the cluster
// lacks. Values of one stage that it lacks are one problem.
func (r *inputValues) reportUndeclared(suggested []string) {
	l, unused := r.load, make(map[string]hcl.Range)
	for _, x := range r.undeclared {
		switch name := x.value.Name; {
		case slices.ContainsFunc(suggested, r.declares(name)):
		case x.stages == ofThisCluster && slices.ContainsFunc(l.library.sources(), r.declares(name)):
			unused[name] = x.value.at
		default:
			d := syntax.Problem(x.value.at, "variable "+name+": not declared", "%s declares it%s", x.stages,
				cmp.Or(x.near, "."))
			d.Extra = syntax.Unread{Name: name}
			l.diags.report(d)
		}
	}
	has := func(source, name string) bool { return r.declares(name)(source) }
	for _, g := range outline.Groups(slices.Sorted(maps.Keys(unused)), l.library.sources(), has) {
		first := slices.MinFunc(g.Names, func(a, b string) int {
			return cmp.Compare(unused[a].Start.Byte, unused[b].Start.Byte)
		})
		noun, pronoun := "variable ", "it"
		if len(g.Names) > 1 {
			noun, pronoun = "variables ", "them"
		}
		l.diags.add(unused[first], noun+strings.Join(g.Names, ", ")+": not declared",
			"No stage of this cluster declares %s. Remove %s, or add to %s: %s.", pronoun, pronoun,
			l.file("cluster.hcl"), outline.Blocks(g.Sources))
	}
}

// readSecrets reads secrets.tfvars, which no other user may be able to read.
func (r *inputValues) readSecrets() map[string]Written {
	name := "secrets.tfvars"
	info, err := os.Stat(filepath.Join(r.load.cluster.Dir, name))
	if err == nil && info.Mode().Perm()&0o077 != 0 {
		r.load.diags.add(syntax.WholeFile(r.load.file(name)), name+": readable by others",
			"Its mode is %04o and must be 0600. Run chmod 600 %s", info.Mode().Perm(), r.load.file(name))
	}
	return r.readTfvars(r.load.file(""), name, false)
}

// readTfvars reads a file of a folder of the repository.
func (r *inputValues) readTfvars(folder, name string, quote bool) map[string]Written {
	tree := os.DirFS(filepath.Join(r.load.options.Repository, filepath.FromSlash(folder)))
	f, diags := r.load.library.read(tree, name, path.Join(folder, name), quote)
	r.load.diags.report(diags...)
	r.noFile = r.noFile || name == ownFile && f == nil && !diags.HasErrors()
	values := r.assignments(f)
	names, all := syntax.Names(diags)
	for _, name := range names {
		r.meant[name] = true
	}
	r.load.unset = r.load.unset || all
	return values
}

// assignments reads a file of names and constant values.
func (r *inputValues) assignments(f *hcl.File) map[string]Written {
	values := make(map[string]Written)
	if f == nil {
		return values
	}
	attrs, diags := f.Body.JustAttributes()
	for _, d := range diags {
		r.load.diags.report(syntax.QuoteOneLine(d))
	}
	if body, is := f.Body.(*hclsyntax.Body); is {
		for _, b := range body.Blocks { // diags has them
			r.meant[b.Type] = true
		}
	}
	for name, attr := range attrs {
		values[name] = r.evaluate(Written{Name: name, at: attr.NameRange, expr: attr.Expr}, nil)
	}
	return values
}

func (r *inputValues) evaluate(w Written, ctx *hcl.EvalContext) Written {
	v, diags := w.expr.Value(ctx)
	if len(diags) > 0 { // the others follow from the first
		d := syntax.QuoteOneLine(syntax.Plain(diags)[0])
		refers := func(t hcl.Traversal) bool { return t.SourceRange().ContainsPos(d.Subject.Start) }
		switch {
		case ctx == nil && d.Summary == "Function calls not allowed":
			d.Detail = "Inputs in cluster.hcl may call some: inputs = { " + w.Name + " = … }."
		case ctx == nil && slices.ContainsFunc(w.expr.Variables(), refers):
			d.Detail = "A value cannot refer to another one. Write a text in quotes, and $${ in it for ${."
		}
		r.load.diags.report(d)
	}
	if w.Value = v; diags.HasErrors() {
		w.Value, w.broken = cty.DynamicVal, true
	}
	return w
}

// bindGates binds the variables of a disabled stage that its gates name. Nothing else of it needs a value.
func (r *inputValues) bindGates(s *Stage) {
	r.checkInputs(s)
	var bind func(expr hcl.Expression)
	bind = func(expr hcl.Expression) {
		for _, ref := range references(expr) {
			v, declared := s.Variables[ref.name]
			if ref.root != "var" || !declared || s.bindings[ref.name] != nil {
				continue
			}
			b := r.binding(s, v)
			s.bindings[ref.name] = b
			if b.Value == cty.NilVal {
				bind(b.expr)
			}
		}
	}
	for _, g := range s.Gates {
		for _, arg := range g.block.args {
			bind(arg.Expr)
		}
	}
}

// binding returns a variable's value, by precedence.
func (r *inputValues) binding(s *Stage, v module.Variable) *Written {
	if x, ok := first(r.above, v.Name); ok {
		r.checkWired(s, v.Name)
		return r.settle(x, v)
	}
	if in, ok := s.entry.settings.inputs[v.Name]; ok {
		return &in
	}
	if in, ok := s.definition.settings.inputs[v.Name]; ok {
		r.checkWired(s, v.Name)
		return &in
	}
	if x, ok := first(r.below, v.Name); ok {
		return r.settle(x, v)
	}
	fallback, _ := v.Default()
	b := &Written{Name: v.Name, Value: fallback, at: v.Declared()}
	if v.Required {
		r.missing[v.Name] = append(r.missing[v.Name], s)
		b.Value, b.broken = cty.UnknownVal(v.Type), true
	}
	return b
}

// settle converts a value to the type of a variable.
func (r *inputValues) settle(x Written, v module.Variable) *Written {
	var err error
	if x.text {
		x.Value, err = v.SettleText(x.Value.AsString())
	} else {
		x.Value, err = v.Settle(x.Value)
	}
	problems := x.misfits("variable "+v.Name+": ", v)
	if len(problems) == 0 && err != nil {
		at := x.at
		if x.expr != nil && !v.Sensitive { // a snippet prints all marked lines
			at = hcl.RangeBetween(at, x.expr.Range())
		}
		problems = hcl.Diagnostics{syntax.Problem(at, "variable "+v.Name+": unsuitable value", "%s.", err)}
	}
	if len(problems) > 0 {
		x.Value, x.broken = cty.UnknownVal(v.Type), true
	}
	if !r.load.ambiguous[v.Name] {
		r.load.diags.report(problems...)
	}
	return &x
}

// misfits reports the parts of the value that do not suit the variable.
func (w Written) misfits(of string, v module.Variable) (diags hcl.Diagnostics) {
	if w.expr == nil {
		return nil
	}
	for _, m := range syntax.Misfits(w.expr, w.at, v.Constraint()) {
		at := m.At
		if v.Sensitive {
			at = w.at
		}
		d := syntax.Problem(at, of+strings.TrimPrefix(m.Part+": ", ": ")+m.Text,
			"%s The variable is declared at %s.", m.Reason, syntax.Place(v.Declared()))
		d.Extra = syntax.Unread{Name: m.Part[strings.LastIndexByte(m.Part, '.')+1:]} // it may be a secret's
		diags = append(diags, d)
	}
	return diags
}

// checkWired reports a file's value for a variable that stage.hcl wires, unless another stage takes it.
func (r *inputValues) checkWired(s *Stage, name string) {
	wired, ok := s.definition.settings.inputs[name]
	_, overridden := s.entry.settings.inputs[name]
	takes := func(other *Stage) bool { return other.takes(name) }
	if !ok || overridden {
		return
	}
	for _, y := range r.below {
		x, set := y.values[name]
		if set && !slices.ContainsFunc(r.load.cluster.Stages, takes) && !r.takenElsewhere(y, name) {
			r.load.diags.add(x.at, fmt.Sprintf("variable %s: set here, but stage %s wires it", name, s.Name),
				"%s sets it for the stage, and this value would be ignored. To override the wiring, write "+
					"inputs = { %s = … } in stage %q of %s; else remove this line.",
				syntax.Place(wired.at), name, s.Name, r.load.file("cluster.hcl"))
		}
	}
}

// takes reports whether the stage leaves a variable to the files.
func (s *Stage) takes(name string) bool {
	_, declared := s.Variables[name]
	_, wired := s.definition.settings.inputs[name]
	_, overridden := s.entry.settings.inputs[name]
	return declared && !wired && !overridden
}

// checkInputs reports inputs of cluster.hcl and stage.hcl for variables that the module does not declare.
func (r *inputValues) checkInputs(s *Stage) {
	if s.definition.incomplete {
		return
	}
	for _, inputs := range []map[string]Written{s.entry.settings.inputs, s.definition.settings.inputs} {
		for name, in := range inputs {
			if _, ok := s.Variables[name]; !ok {
				r.load.diags.add(in.at, fmt.Sprintf("stage %s: unknown input %s", s.Name, name),
					"The module %s declares no variable of this name%s", s.Source,
					syntax.Hint(name, slices.Collect(maps.Keys(s.Variables))))
			}
		}
	}
}

func (r *inputValues) reportMissing() {
	if r.load.unset {
		return
	}
	var absent []string // with the file
	for _, name := range slices.Sorted(maps.Keys(r.missing)) {
		r.missing[name] = slices.DeleteFunc(r.missing[name],
			func(s *Stage) bool { return s.definition.incomplete })
		switch {
		case len(r.missing[name]) == 0 || r.meant[name]:
		case r.noFile && !r.missing[name][0].Variables[name].Sensitive:
			absent = append(absent, name)
		default:
			r.reportValue(name)
		}
	}
	if len(absent) == 1 {
		r.reportValue(absent[0])
	} else if len(absent) > 1 {
		r.reportNoFile(absent)
	}
}

// reportValue reports a variable without a value.
func (r *inputValues) reportValue(name string) {
	v := r.missing[name][0].Variables[name]
	where := "Set it in " + r.load.file("terraform.tfvars")
	if v.Sensitive {
		where = fmt.Sprintf("It is sensitive: set it in %s (mode 0600) or as TF_VAR_%s",
			r.load.file("secrets.tfvars"), name)
	}
	r.load.diags.add(v.Declared(), "variable "+name+": no value", "It is required by %s. %s.",
		stageNames(r.missing[name]), where)
}

// reportNoFile reports that the cluster has no terraform.tfvars.
func (r *inputValues) reportNoFile(names []string) {
	files, _ := fs.Glob(os.DirFS(r.load.cluster.Dir), "*.t[a-z]*") // the pattern is well-formed
	fix := "Write"
	if similar := syntax.Nearest("terraform.tfvars", files); similar != "" {
		fix = fmt.Sprintf("Rename %s; else write", r.load.file(similar))
	}
	r.load.diags.add(syntax.WholeFile(r.load.file("terraform.tfvars")), "no such file",
		"%s the file: %d variables need a value, which are %s.", fix, len(names), strings.Join(names, ", "))
}

// stageNames names stages in a sentence.
func stageNames(stages []*Stage) string {
	names := xslices.Map(stages, func(s *Stage) string { return s.Name })
	if len(names) == 1 {
		return "stage " + names[0]
	}
	return "stages " + strings.Join(names, ", ")
}
