package importer

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/hashicorp/hcl/v2/hclwrite"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/function"

	"github.com/ephemeral-castle/castle/internal/syntax"
)

// terragrunt reads a stack of Terragrunt. It evaluates expressions from the files alone.
type terragrunt struct {
	dir, top string // what is imported, and the Git repository around it: absolute
	reading  map[string]bool
	units    []*unit
	included map[string]bool
	plain    map[string][]Gap // of files without a module, which count unless units include the file
	result   Stages
}

// unit is one Terraform module of the stack.
type unit struct {
	dir          string // absolute
	file         place
	source       string               // of the module
	variables    map[string]cty.Value // local, include, values
	inputs       map[string]input
	dependencies map[string]string    // folders by name
	after        []string             // folders of the units that come before
	parents      map[string]string    // folders of included files by the include's name; "": the first
	generated    map[string]generated // by label
	name, layer  string
}

// input is a value, or an expression that names outputs of dependencies.
type input struct {
	value cty.Value
	parts []string // texts, and between them the folder of a dependency with its output
	at    place
	lacks string // why there is no value
}

func (t *terragrunt) line(at hcl.Range) place {
	return place{t.shown(at.Filename), max(at.Start.Line, 1)}
}

func (t *terragrunt) gap(at hcl.Range, subject, reason, fix string) {
	t.note(t.line(at), subject, reason, fix)
}

func (t *terragrunt) note(at place, subject, reason, fix string) {
	t.result.Gaps = append(t.result.Gaps, Gap{at.file, at.line, subject, reason, fix})
}

// shown is the name of a file for the user.
func (t *terragrunt) shown(file string) string {
	wd, err := os.Getwd()
	relative, unrelated := filepath.Rel(wd, file)
	if err != nil || unrelated != nil {
		return file
	}
	return relative
}

func (t *terragrunt) inside(path string) bool {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	}
	relative, err := filepath.Rel(t.top, path)
	return err == nil && filepath.IsLocal(relative)
}

func (t *terragrunt) parse(path string) (*hclsyntax.Body, error) {
	if !t.inside(path) {
		return nil, fmt.Errorf("%s is outside of the repository %s", path, t.top)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	f, diags := hclsyntax.ParseConfig(text, path, hcl.InitialPos)
	if diags.HasErrors() {
		return nil, fmt.Errorf("%s:%d: %s", t.shown(path), syntax.Subject(diags[0]).Start.Line,
			diags[0].Summary)
	}
	return f.Body.(*hclsyntax.Body), nil
}

// find reads all units below the folder.
func (t *terragrunt) find() error {
	return filepath.WalkDir(t.dir, func(path string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case e.IsDir() && path != t.dir && strings.HasPrefix(e.Name(), "."):
			return fs.SkipDir
		case e.Name() == "terragrunt.hcl.json", e.Type() == fs.ModeSymlink &&
			(e.Name() == "terragrunt.hcl" || filepath.Ext(path) == ""): // a folder
			t.note(place{t.shown(path), 1}, e.Name(), "is JSON or a link, which castle does not read",
				"import a copy in HCL, without links")
		case e.Name() == "terragrunt.hcl" && e.Type().IsRegular():
			return t.unit(path, filepath.Dir(path), cty.EmptyObjectVal)
		case e.Name() == "terragrunt.stack.hcl" && e.Type().IsRegular():
			return t.stack(path)
		}
		return nil
	})
}

// stack reads the units of a terragrunt.stack.hcl from their sources.
func (t *terragrunt) stack(path string) error {
	u := &unit{dir: filepath.Dir(path), variables: map[string]cty.Value{}}
	body, err := t.parse(path)
	if err != nil {
		return err
	}
	t.locals(u, body)
	for _, b := range body.Blocks {
		source := filepath.Join(absolute(u.dir, t.string(u, b.Body, "source")), "terragrunt.hcl")
		if b.Type == "locals" {
			continue
		} else if _, err := os.Stat(source); err != nil || b.Type != "unit" {
			t.gap(b.Range(), b.Type, "has no source that is the folder of a unit here", "import a copy of it")
			continue
		}
		values, is := t.value(u, b.Body.Attributes["values"])
		if !is {
			values = cty.EmptyObjectVal
		}
		dir := filepath.Join(u.dir, ".terragrunt-stack", t.string(u, b.Body, "path"))
		if err := t.unit(source, dir, values); err != nil {
			return err
		}
	}
	return nil
}

// unit reads a terragrunt.hcl and what it includes. One that has no module is for others to include.
func (t *terragrunt) unit(path, dir string, values cty.Value) error {
	u := &unit{dir: dir, file: place{t.shown(path), 1}, variables: map[string]cty.Value{"values": values},
		inputs: map[string]input{}, dependencies: map[string]string{}, parents: map[string]string{},
		generated: map[string]generated{}}
	body, err := t.parse(path)
	if err != nil {
		return err
	}
	includes, first, before := map[string]cty.Value{}, "", len(t.result.Gaps)
	for _, b := range body.Blocks {
		if b.Type != "include" {
			continue
		}
		name, path := strings.Join(b.Labels, ""), absolute(dir, t.string(u, b.Body, "path"))
		u.parents[name] = filepath.Dir(path)
		u.parents[""] = u.parents[name]
		first = cmp.Or(first, u.parents[name])
		t.included[path] = true
		parent, err := t.parse(path)
		if err != nil {
			t.gap(b.Range(), "include", "names a file that castle cannot read: "+err.Error(),
				"write its inputs in cluster.hcl")
			continue
		}
		t.locals(u, parent)
		locals := map[string]cty.Value{"locals": u.variables["local"]}
		includes[name] = cty.ObjectVal(locals)
		strategy := cmp.Or(t.string(u, b.Body, "merge_strategy"), "shallow")
		if strategy != "no_merge" {
			t.contents(u, parent)
		}
		if strategy == "deep" {
			t.gap(b.Range(), "include", "is merged as shallow", "compare the inputs in cluster.hcl")
		}
	}
	u.parents[""] = first
	u.variables["include"] = cty.ObjectVal(includes)
	t.locals(u, body)
	t.contents(u, body)
	at := filepath.Dir(path)
	if files, _ := fs.Glob(os.DirFS(at), "*.tf"); len(files) > 0 && u.source == "" { // a constant pattern
		u.source = at
	}
	if u.source != "" {
		t.units = append(t.units, u)
		t.beside(u, at)
	} else {
		t.plain[path] = slices.Clone(t.result.Gaps[before:])
		t.result.Gaps = t.result.Gaps[:before]
	}
	return nil
}

// beside notes the files that Terragrunt copies over the module of a unit.
func (t *terragrunt) beside(u *unit, dir string) {
	entries, _ := os.ReadDir(dir) // its terragrunt.hcl was read
	for _, e := range entries {
		isOwn := e.IsDir() || filepath.Ext(e.Name()) == ".hcl" || strings.HasPrefix(e.Name(), "terragrunt.")
		if absolute(u.dir, u.source) != dir && !isOwn {
			t.note(place{t.shown(filepath.Join(dir, e.Name())), 1}, e.Name(),
				"is beside the unit, not in its module", "copy it into the stage")
		}
	}
}

// others are parts that castle has something else for.
var others = map[string][2]string{
	"extra_arguments": {"adds arguments of Terraform, and castle has its own",
		"set in cluster.hcl what they set"},
	"remote_state": {"stores states, which castle does itself", "set state in castle.hcl to share them"},
}

// contents takes over the blocks and inputs of a file.
func (t *terragrunt) contents(u *unit, body *hclsyntax.Body) {
	other := func(name string, at hcl.Range) {
		known, is := others[name]
		if !is {
			known = [2]string{"is not taken over", "do it in the stage or in cluster.hcl, if you need it"}
		}
		t.gap(at, name, known[0], known[1])
	}
	for _, b := range body.Blocks {
		switch b.Type {
		case "locals", "include":
		case "terraform":
			u.source = cmp.Or(t.string(u, b.Body, "source"), u.source)
			for _, inner := range b.Body.Blocks {
				other(inner.Type, inner.Range())
			}
		case "generate":
			t.generate(u, b)
		case "dependency":
			if path := t.string(u, b.Body, "config_path"); path != "" {
				u.dependencies[strings.Join(b.Labels, "")] = absolute(u.dir, path)
				u.after = append(u.after, absolute(u.dir, path))
			}
		case "dependencies":
			if paths, is := t.value(u, b.Body.Attributes["paths"]); is && paths.CanIterateElements() {
				for _, path := range paths.AsValueSlice() {
					u.after = append(u.after, absolute(u.dir, syntax.Text(path)))
				}
			}
		default:
			other(b.Type, b.Range())
		}
	}
	for name, attr := range body.Attributes {
		if name != "inputs" {
			other(name, attr.SrcRange)
			continue
		}
		pairs, diags := hcl.ExprMap(attr.Expr)
		for _, kv := range pairs {
			key, unknown := kv.Key.Value(t.context(u))
			if unknown.HasErrors() {
				t.gap(kv.Key.Range(), "inputs", "have a name that is not evaluated", "set it in cluster.hcl")
				continue
			}
			t.input(u, syntax.Text(key), kv.Key.Range(), kv.Value)
		}
		if diags.HasErrors() { // a call, such as of merge
			v, is := t.value(u, attr)
			if is && !v.IsNull() && (v.Type().IsObjectType() || v.Type().IsMapType()) {
				for name, e := range v.AsValueMap() {
					u.inputs[name] = input{value: e, at: t.line(attr.SrcRange)}
				}
			}
		}
	}
}

// input takes over a value that castle evaluates, or an expression of outputs that it rewrites.
func (t *terragrunt) input(u *unit, name string, at hcl.Range, e hcl.Expression) {
	in := input{at: t.line(at)}
	v, diags := e.Value(t.context(u))
	if !diags.HasErrors() && v.IsWhollyKnown() {
		in.value = v
		u.inputs[name] = in
		return
	}
	file, _ := os.ReadFile(at.Filename) // it was read before
	from, references, text := e.Range().Start.Byte, e.Variables(), ""
	slices.SortFunc(references, func(a, b hcl.Traversal) int {
		return cmp.Compare(a.SourceRange().Start.Byte, b.SourceRange().Start.Byte)
	})
	in.lacks = reason(diags)
	whole := name + " = "
	for _, r := range references {
		start, end := r.SourceRange().Start.Byte, r.SourceRange().End.Byte
		names := []string{r.RootName(), "", "", ""} // dependency.NAME.outputs.OUTPUT, and what follows
		for i := 1; i < min(len(r), len(names)); i++ {
			switch step := r[i].(type) {
			case hcl.TraverseAttr:
				names[i] = step.Name
			case hcl.TraverseIndex:
				names[i] = syntax.Text(step.Key)
			}
		}
		text += string(file[from:start])
		v, unknown := r.TraverseAbs(t.context(u))
		dependency := u.dependencies[names[1]]
		switch {
		case names[0] == "dependency" && names[2] == "outputs" && names[3] != "" && dependency != "":
			in.parts, whole = append(in.parts, text, dependency, names[3]), whole+text
			from, text = r[3].SourceRange().End.Byte, ""
		case !unknown.HasErrors() && v.IsKnown() && v.Type().IsPrimitiveType() &&
			!confidential(cmp.Or(names[min(len(r), 4)-1], name), v):
			text += string(hclwrite.TokensForValue(v).Bytes())
			from = end
		default:
			if strings.Contains(in.lacks, `"dependency"`) {
				in.lacks = "refers to " + string(file[start:end]) + ", which castle does not write"
			}
			u.inputs[name] = input{at: in.at, lacks: in.lacks}
			return
		}
	}
	if len(in.parts) > 0 {
		text += string(file[from:e.Range().End.Byte])
		in.parts, in.lacks = append(in.parts, text), ""
	}
	switch {
	case writtenSecret(whole+text) != "":
		in.lacks = isSecret
	case strings.Contains(whole+text, t.top):
		in.lacks = "has a path in the old repository"
	}
	u.inputs[name] = in
}

// reason says why an expression has no value. A function that castle never calls does not exist for it.
func reason(diags hcl.Diagnostics) string {
	if diags.HasErrors() {
		return "is not evaluated: " + diags[0].Detail
	}
	return "depends on a value that is not evaluated"
}

// value evaluates an attribute. One without a value is a gap.
func (t *terragrunt) value(u *unit, attr *hclsyntax.Attribute) (cty.Value, bool) {
	if attr == nil {
		return cty.DynamicVal, false
	}
	v, diags := attr.Expr.Value(t.context(u))
	if diags.HasErrors() || !v.IsWhollyKnown() {
		t.gap(attr.SrcRange, attr.Name, reason(diags), "write what follows from it in cluster.hcl")
		return cty.DynamicVal, false
	}
	return v, true
}

func (t *terragrunt) string(u *unit, body *hclsyntax.Body, name string) string {
	v, _ := t.value(u, body.Attributes[name])
	return syntax.Text(v)
}

// locals evaluates the locals of a file, those first that need no other one.
func (t *terragrunt) locals(u *unit, body *hclsyntax.Body) {
	known, open := map[string]cty.Value{}, map[string]*hclsyntax.Attribute{}
	for _, b := range body.Blocks {
		if b.Type == "locals" {
			maps.Copy(open, b.Body.Attributes)
		}
	}
	u.variables["local"] = cty.EmptyObjectVal
	for before := -1; before != len(known); {
		before = len(known)
		for name, attr := range open {
			if v, diags := attr.Expr.Value(t.context(u)); !diags.HasErrors() {
				known[name] = v
				delete(open, name)
			}
		}
		u.variables["local"] = cty.ObjectVal(known)
	}
	for name, attr := range open {
		known[name], _ = t.value(u, attr)
	}
	u.variables["local"] = cty.ObjectVal(known)
}

// easy are the functions that castle has beside its own.
var easy = []string{"basename", "dirname", "get_terragrunt_dir", "get_parent_terragrunt_dir",
	"get_repo_root", "path_relative_to_include", "find_in_parent_folders", "read_terragrunt_config"}

// context is what the expressions of a unit can refer to.
func (t *terragrunt) context(u *unit) *hcl.EvalContext {
	functions := maps.Clone(syntax.Functions())
	for _, name := range easy {
		functions[name] = function.New(&function.Spec{
			VarParam: &function.Parameter{Name: "arguments", Type: cty.DynamicPseudoType},
			Type:     function.StaticReturnType(cty.DynamicPseudoType),
			Impl: func(args []cty.Value, _ cty.Type) (cty.Value, error) {
				if name == "read_terragrunt_config" && len(args) > 0 {
					v, err := t.read(u, syntax.Text(args[0]))
					if errors.Is(err, fs.ErrNotExist) && len(args) > 1 {
						return args[1], nil
					}
					return v, err
				}
				texts := []string{"", ""}
				for i, a := range args[:min(2, len(args))] {
					texts[i] = syntax.Text(a)
				}
				s, err := t.call(u, name, texts[0], texts[1])
				return cty.StringVal(s), err
			},
		})
	}
	return &hcl.EvalContext{Functions: functions, Variables: u.variables}
}

// call evaluates a function that returns a text.
func (t *terragrunt) call(u *unit, name, first, second string) (string, error) {
	switch name {
	case "basename":
		return filepath.Base(first), nil
	case "dirname":
		return filepath.Dir(first), nil
	case "get_terragrunt_dir":
		return u.dir, nil
	case "get_repo_root":
		return t.top, nil
	case "get_parent_terragrunt_dir":
		return cmp.Or(u.parents[first], u.dir), nil
	case "path_relative_to_include":
		return filepath.Rel(cmp.Or(u.parents[first], u.dir), u.dir)
	}
	return t.above(u.dir, cmp.Or(first, "terragrunt.hcl"), second)
}

// above finds a file in the folders above.
func (t *terragrunt) above(dir, name, fallback string) (string, error) {
	for d := filepath.Dir(dir); t.inside(d); d = filepath.Dir(d) {
		if _, err := os.Stat(filepath.Join(d, name)); err == nil {
			return filepath.Join(d, name), nil
		}
	}
	if fallback == "" {
		return "", fmt.Errorf("no folder above has %s", name)
	}
	return fallback, nil
}

// read evaluates the locals of another file.
func (t *terragrunt) read(u *unit, path string) (cty.Value, error) {
	path = absolute(u.dir, path)
	body, err := t.parse(path)
	if t.reading[path] {
		err = errors.New("files read one another")
	}
	if err != nil {
		return cty.NilVal, err
	}
	t.reading[path] = true
	defer delete(t.reading, path)
	other := &unit{dir: filepath.Dir(path), variables: map[string]cty.Value{}}
	t.locals(other, body)
	return cty.ObjectVal(map[string]cty.Value{"locals": other.variables["local"]}), nil
}

func absolute(dir, path string) string {
	if filepath.IsAbs(path) {
		return filepath.Clean(path)
	}
	return filepath.Join(dir, path)
}
