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

// given are the values from outside the stages. Each belongs to every variable of its name.
type given struct {
	above []map[string]value // over what stages are wired with, the strongest first
	below []map[string]value // under it, the strongest first
}

// value is one value and where it was given.
type value struct {
	value cty.Value
	text  bool // value is a string that is still to be read by the variable's type
	at    hcl.Range
	// Where a file assigns the value: its name there, and the expression.
	name hcl.Range
	expr hcl.Expression
}

// readValues reads the values and reports the names that nobody declares.
// Names in the environment are not judged: it may serve others than castle.
func (l *loader) readValues() {
	vars := make(map[string]value)
	for name, text := range l.Vars {
		vars[name] = value{value: cty.StringVal(text), text: true, at: origin("--var " + name)}
	}
	files := make(map[string]value)
	for _, file := range l.VarFiles {
		f, diags := l.library.read(os.DirFS(filepath.Dir(file)), filepath.Base(file), file, false)
		l.report(diags...)
		if f == nil && !diags.HasErrors() {
			l.report(problem(hcl.Range{}, "--var-file "+file+": no such file", ""))
		}
		maps.Copy(files, l.assignments(f))
	}
	environ := make(map[string]value)
	for _, kv := range l.Environ {
		key, text, _ := strings.Cut(kv, "=")
		if name, ok := strings.CutPrefix(key, "TF_VAR_"); ok {
			environ[name] = value{value: cty.StringVal(text), text: true, at: origin(key)}
		}
	}
	secrets, plain, defaults := l.readSecrets(), l.readTfvars("terraform.tfvars", true), l.readDefaults()
	l.cluster.secrets, l.cluster.open = secrets, l.openValues(plain, defaults)
	l.given.above = []map[string]value{vars, files, environ}
	l.given.below = []map[string]value{secrets, plain, defaults}

	declared := make(map[string]bool)
	for _, s := range slices.Concat(l.cluster.Stages, l.cluster.Disabled) {
		for name := range s.Variables {
			declared[name] = true
		}
	}
	if len(l.partial) == 0 {
		for _, values := range []map[string]value{vars, files, secrets, plain} {
			l.reportUndeclared(values, declared, "No stage of this cluster declares it%s")
		}
	}
	for name := range defaults {
		if declared[name] {
			continue
		}
		for _, source := range l.library.sources() { // other clusters may have these stages
			for name := range l.library.definition(source).variables {
				declared[name] = true
			}
		}
		l.reportUndeclared(defaults, declared, "No stage declares it%s")
		return
	}
}

func (l *loader) reportUndeclared(values map[string]value, declared map[string]bool, detail string) {
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if !declared[name] {
			names := slices.Collect(maps.Keys(declared))
			l.report(problem(values[name].at, "variable "+name+": not declared", detail, orStop(DidYouMean(name, names))))
		}
	}
}

// readSecrets reads secrets.tfvars, which nobody else may be able to read.
func (l *loader) readSecrets() map[string]value {
	name := "secrets.tfvars"
	info, err := os.Stat(filepath.Join(l.cluster.Dir, name))
	if err == nil && info.Mode().Perm()&0o077 != 0 {
		l.report(problem(origin(l.file(name)), name+": readable by others",
			"Its mode is %04o and must be 0600. Run chmod 600 %s", info.Mode().Perm(), l.file(name)))
	}
	return l.readTfvars(name, false)
}

func (l *loader) readTfvars(name string, quote bool) map[string]value {
	f, diags := l.library.read(os.DirFS(l.cluster.Dir), name, l.file(name), quote)
	l.report(diags...)
	return l.assignments(f)
}

func (l *loader) readDefaults() map[string]value {
	values := make(map[string]value)
	for name, in := range l.defaults.inputs {
		v, diags := in.expr.Value(l.cluster.context())
		l.report(plain(diags)...)
		if diags.HasErrors() {
			v = cty.DynamicVal
		}
		values[name] = value{value: v, at: in.at, name: in.at, expr: in.expr}
	}
	return values
}

// assignments reads a file of names and constant values.
func (l *loader) assignments(f *hcl.File) map[string]value {
	values := make(map[string]value)
	if f == nil {
		return values
	}
	attrs, diags := f.Body.JustAttributes()
	l.report(diags...)
	for name, attr := range attrs {
		v, diags := attr.Expr.Value(nil)
		l.report(plain(diags)...)
		if diags.HasErrors() {
			v = cty.DynamicVal
		}
		values[name] = value{value: v, at: attr.Range, name: attr.NameRange, expr: attr.Expr}
	}
	return values
}

// settle makes of a value what a variable holds.
func (x value) settle(v Variable) (cty.Value, hcl.Diagnostics) {
	known := x.value
	if x.text && !v.literal {
		expr, diags := hclsyntax.ParseExpression([]byte(known.AsString()), x.at.Filename, hcl.InitialPos)
		if !diags.HasErrors() {
			known, diags = expr.Value(nil)
		}
		if diags.HasErrors() {
			return cty.UnknownVal(v.Type), hcl.Diagnostics{problem(x.at, "variable "+v.Name+": unsuitable value",
				"The variable is %s, declared at %s, so its text is read as an expression. %s: %s", v.constraint, place(v.declared), diags[0].Summary, diags[0].Detail)}
		}
	}
	settled, err := v.settle(known)
	if err != nil {
		return cty.UnknownVal(v.Type), hcl.Diagnostics{problem(x.at, "variable "+v.Name+": unsuitable value",
			"%s. The variable is %s, declared at %s.", err, v.constraint, place(v.declared))}
	}
	return settled, nil
}

// origin is the place of a value that stands in no file or fills a whole one.
func origin(name string) hcl.Range {
	return hcl.Range{Filename: name, Start: hcl.InitialPos, End: hcl.InitialPos}
}

// orStop returns a hint, or a full stop where there is none.
func orStop(hint string) string {
	if hint == "" {
		return "."
	}
	return hint
}
