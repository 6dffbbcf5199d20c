package config

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
)

// inputValues reads the values from outside the stages, and binds the variables of
// stages to them. A value belongs to every variable of its name.
type inputValues struct {
	load    *loader
	above   []map[string]value  // these override inputs; the strongest first
	below   []map[string]value  // inputs override these; the strongest first
	missing map[string][]*Stage // by variable without a value: the stages that require it
}

// value is one value and where it was given.
type value struct {
	value cty.Value
	text  bool // value is a text, to be parsed by the variable's type
	at    hcl.Range
	// Where a file assigns the value: its name there, and the expression.
	name hcl.Range
	expr hcl.Expression
}

// read reads the values, and reports names that no stage declares, except those in the
// environment, which other programs may use.
func (r *inputValues) read(inputs map[string]input) {
	vars := make(map[string]value)
	for name, text := range r.load.options.Vars {
		vars[name] = value{value: cty.StringVal(text), text: true, at: wholeFile("--var " + name)}
	}
	files := make(map[string]value)
	for _, file := range r.load.options.VarFiles {
		f, diags := r.load.library.read(os.DirFS(filepath.Dir(file)), filepath.Base(file), file, false)
		r.load.report(diags...)
		if f == nil && !diags.HasErrors() {
			r.load.problem(hcl.Range{}, "--var-file "+file+": no such file", "")
		}
		maps.Copy(files, r.assignments(f))
	}
	environ := make(map[string]value)
	for _, kv := range r.load.options.Environ {
		key, text, _ := strings.Cut(kv, "=")
		if name, ok := strings.CutPrefix(key, "TF_VAR_"); ok {
			environ[name] = value{value: cty.StringVal(text), text: true, at: wholeFile(key)}
		}
	}
	secrets, plain, defaults := r.readSecrets(), r.readTfvars("terraform.tfvars", true),
		r.readDefaults(inputs)
	r.load.cluster.secrets, r.load.cluster.open = secrets, r.openValues(plain, defaults)
	r.above = []map[string]value{vars, files, environ}
	r.below = []map[string]value{secrets, plain, defaults}

	declared := make(map[string]bool)
	for _, s := range slices.Concat(r.load.cluster.Stages, r.load.cluster.Disabled) {
		for name := range s.Variables {
			declared[name] = true
		}
	}
	if len(r.load.partial) == 0 {
		for _, values := range []map[string]value{vars, files, secrets, plain} {
			r.reportUndeclared(values, declared, "No stage of this cluster declares it%s")
		}
	}
	for name := range defaults {
		if declared[name] {
			continue
		}
		for _, source := range r.load.library.sources() { // other clusters may have these stages
			for name := range r.load.library.definition(source).variables {
				declared[name] = true
			}
		}
		r.reportUndeclared(defaults, declared, "No stage declares it%s")
		return
	}
}

func (r *inputValues) reportUndeclared(values map[string]value, declared map[string]bool, detail string) {
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if !declared[name] {
			names := slices.Collect(maps.Keys(declared))
			r.load.problem(values[name].at, "variable "+name+": not declared", detail,
				orStop(DidYouMean(name, names)))
		}
	}
}

// readSecrets reads secrets.tfvars, which no other user may be able to read.
func (r *inputValues) readSecrets() map[string]value {
	name := "secrets.tfvars"
	info, err := os.Stat(filepath.Join(r.load.cluster.Dir, name))
	if err == nil && info.Mode().Perm()&0o077 != 0 {
		r.load.problem(wholeFile(r.load.file(name)), name+": readable by others",
			"Its mode is %04o and must be 0600. Run chmod 600 %s", info.Mode().Perm(), r.load.file(name))
	}
	return r.readTfvars(name, false)
}

func (r *inputValues) readTfvars(name string, quote bool) map[string]value {
	f, diags := r.load.library.read(os.DirFS(r.load.cluster.Dir), name, r.load.file(name), quote)
	r.load.report(diags...)
	return r.assignments(f)
}

func (r *inputValues) readDefaults(inputs map[string]input) map[string]value {
	values := make(map[string]value)
	for name, in := range inputs {
		v, diags := in.expr.Value(r.load.cluster.context())
		r.load.report(plain(diags)...)
		if diags.HasErrors() {
			v = cty.DynamicVal
		}
		values[name] = value{value: v, at: in.at, name: in.at, expr: in.expr}
	}
	return values
}

// assignments reads a file of names and constant values.
func (r *inputValues) assignments(f *hcl.File) map[string]value {
	values := make(map[string]value)
	if f == nil {
		return values
	}
	attrs, diags := f.Body.JustAttributes()
	r.load.report(diags...)
	for name, attr := range attrs {
		v, diags := attr.Expr.Value(nil)
		r.load.report(plain(diags)...)
		if diags.HasErrors() {
			v = cty.DynamicVal
		}
		values[name] = value{value: v, at: attr.Range, name: attr.NameRange, expr: attr.Expr}
	}
	return values
}

// settle converts a value to the type of a variable.
func (x value) settle(v Variable) (cty.Value, hcl.Diagnostics) {
	known := x.value
	if x.text && !v.literal {
		expr, diags := hclsyntax.ParseExpression([]byte(known.AsString()), x.at.Filename, hcl.InitialPos)
		if !diags.HasErrors() {
			known, diags = expr.Value(nil)
		}
		if diags.HasErrors() {
			return cty.UnknownVal(v.Type),
				hcl.Diagnostics{problem(x.at, "variable "+v.Name+": unsuitable value",
					"The variable is %s, declared at %s, so its text is read as an expression. %s: %s",
					v.constraint, place(v.declared), diags[0].Summary, diags[0].Detail)}
		}
	}
	settled, err := v.settle(known)
	if err != nil {
		return cty.UnknownVal(v.Type), hcl.Diagnostics{problem(x.at, "variable "+v.Name+": unsuitable value",
			"%s. The variable is %s, declared at %s.", err, v.constraint, place(v.declared))}
	}
	return settled, nil
}
