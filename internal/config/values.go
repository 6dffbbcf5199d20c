package config

import (
	"fmt"
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

// value is one value and its place.
type value struct {
	value   cty.Value
	text    bool // value is a text, to be parsed by the variable's type
	at      hcl.Range
	written Written // without Name and Value
}

// textValue is a value of the command line or the environment.
func textValue(text, at string) value {
	place := wholeFile(at)
	return value{value: cty.StringVal(text), text: true, at: place, written: Written{at: place}}
}

// read reads the values, and reports names that no stage declares, except those in the
// environment, which other programs may use.
func (r *inputValues) read(inputs map[string]input) {
	vars := make(map[string]value)
	for name, text := range r.load.options.Vars {
		vars[name] = textValue(text, "--var "+name)
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
			environ[name] = textValue(text, key)
		}
	}
	secrets, plain := r.readSecrets(), r.readTfvars("terraform.tfvars", true)
	defaults := make(map[string]value)
	for name, in := range inputs {
		defaults[name] = r.evaluate(in.expr, r.load.cluster.context(), in.at, in.at)
	}
	r.load.cluster.secrets, r.load.cluster.committed = secrets, r.committedValues(plain, defaults)
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

// assignments reads a file of names and constant values.
func (r *inputValues) assignments(f *hcl.File) map[string]value {
	values := make(map[string]value)
	if f == nil {
		return values
	}
	attrs, diags := f.Body.JustAttributes()
	r.load.report(diags...)
	for name, attr := range attrs {
		values[name] = r.evaluate(attr.Expr, nil, attr.Range, attr.NameRange)
	}
	return values
}

func (r *inputValues) evaluate(expr hcl.Expression, ctx *hcl.EvalContext, at, name hcl.Range) value {
	v, diags := expr.Value(ctx)
	r.load.report(plain(diags)...)
	if diags.HasErrors() {
		v = cty.DynamicVal
	}
	return value{value: v, at: at, written: Written{at: name, expr: expr}}
}

// settle converts a value to the type of a variable.
func (x value) settle(v Variable) (cty.Value, hcl.Diagnostics) {
	const summary = "variable %s: unsuitable value"
	known := x.value
	if x.text && !v.literal {
		expr, diags := hclsyntax.ParseExpression([]byte(known.AsString()), x.at.Filename, hcl.InitialPos)
		if !diags.HasErrors() {
			known, diags = expr.Value(nil)
		}
		if diags.HasErrors() {
			return invalid(v.Type, x.at, fmt.Sprintf(summary, v.Name),
				"The variable is %s, declared at %s, so its text is read as an expression. %s: %s",
				v.constraint, place(v.declared), diags[0].Summary, diags[0].Detail)
		}
	}
	settled, err := v.settle(known)
	if err != nil {
		return invalid(v.Type, x.at, fmt.Sprintf(summary, v.Name), "%s. The variable is %s, declared at %s.",
			err, v.constraint, place(v.declared))
	}
	return settled, nil
}
