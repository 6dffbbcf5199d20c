package importer

import (
	"cmp"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/hashicorp/hcl/v2/hclwrite"
	"github.com/hashicorp/terraform-config-inspect/tfconfig"
	"github.com/zclconf/go-cty/cty"

	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/scaffold"
	"github.com/ephemeral-castle/castle/internal/secret"
	"github.com/ephemeral-castle/castle/internal/syntax"
)

// Stages is what castle took over of a stack: the files of a cluster and of its stages.
type Stages struct {
	Files map[string][]byte // by their names in the repository
	Gaps  []Gap
}

// Terragrunt reads the units below a folder, for a cluster with a label such as blue/proxmox.
func Terragrunt(dir, label string) (*Stages, error) {
	absolute, err := filepath.Abs(dir)
	if err == nil {
		absolute, err = filepath.EvalSymlinks(absolute)
	}
	if err != nil {
		return nil, err
	}
	t := &terragrunt{dir: absolute, top: absolute, reading: map[string]bool{},
		included: map[string]bool{}, plain: map[string][]Gap{},
		result: Stages{Files: map[string][]byte{}}}
	for d := absolute; d != filepath.Dir(d); d = filepath.Dir(d) {
		if _, err := os.Lstat(filepath.Join(d, ".git")); err == nil {
			t.top = d
			break
		}
	}
	if err := t.find(); err != nil {
		return nil, err
	}
	for file, gaps := range t.plain {
		if !t.included[file] {
			t.result.Gaps = append(t.result.Gaps, gaps...)
			t.note(place{t.shown(file), 1}, "unit", "has no module that castle knows, and becomes no stage",
				"write a constant terraform.source, and repeat the import in another folder")
		}
	}
	if len(t.units) == 0 {
		return nil, fmt.Errorf("%s has no unit with a Terraform module", dir)
	}
	for _, u := range t.units {
		t.place(u, map[*unit]bool{})
	}
	slices.SortStableFunc(t.units, func(a, b *unit) int { return cmp.Compare(rank(a.layer), rank(b.layer)) })
	text := "# " + label + ", from units of Terragrunt. What a stage depends on is in its stage.hcl.\n\n"
	for _, u := range t.units {
		if text, err = t.write(u, text); err != nil {
			return nil, err
		}
	}
	text = strings.TrimSpace(text) + "\n"
	t.result.Files[path.Join("clusters", label, "cluster.hcl")] = hclwrite.Format([]byte(text))
	t.result.Gaps = sorted(t.result.Gaps)
	return &t.result, nil
}

func rank(layer string) int { return slices.Index(config.Layers(), layer) }

// dependency finds the unit in a folder.
func (t *terragrunt) dependency(dir string) *unit {
	i := slices.IndexFunc(t.units, func(u *unit) bool { return u.dir == dir })
	if i < 0 {
		return nil
	}
	return t.units[i]
}

var (
	unsuitable = regexp.MustCompile(`[^a-z0-9]+`)
	// ordinal is before the layer, as in stage4-networking.
	ordinal = regexp.MustCompile(`^((stage|layer|step)[_-]?)?[0-9]+[._-]`)
	// inCluster makes objects in a cluster.
	inCluster = regexp.MustCompile(`(?m)^\s*resource\s+"(kubernetes|helm|kubectl|flux)_`)
)

// place decides the name and the layer of a unit: a folder of its path names it, or its dependencies do.
func (t *terragrunt) place(u *unit, seen map[*unit]bool) {
	if u.layer != "" || seen[u] {
		return
	}
	seen[u] = true
	last := "secrets"
	for _, dir := range u.after {
		if d := t.dependency(dir); d != nil {
			t.place(d, seen)
			if rank(d.layer) > rank(last) {
				last = d.layer
			}
		}
	}
	relative, _ := filepath.Rel(t.dir, u.dir) // both are absolute
	folders := strings.Split(filepath.ToSlash(relative), "/")
	for _, folder := range folders {
		if layer := ordinal.ReplaceAllString(folder, ""); rank(layer) >= rank(last) {
			u.layer = layer
		}
	}
	if u.layer == "" {
		u.layer = "platform"
		if inCluster.MatchString(t.text(u)) {
			u.layer = "engine"
		}
		if rank(last) > rank(u.layer) {
			u.layer = last
		}
		t.note(u.file, "unit", "is in no folder of a layer that can have it: castle took "+u.layer,
			"move its stage to another folder of stages/, and its source in cluster.hcl, if it belongs there")
	}
	folders = slices.DeleteFunc(folders, func(f string) bool { return strings.HasPrefix(f, ".") })
	for u.name == "" || rank(u.name) >= 0 ||
		slices.ContainsFunc(t.units, func(o *unit) bool { return o != u && o.name == u.name }) {
		last := len(folders) - 1 // as many folders as make it unique
		if last < 0 {
			folders, last = []string{"unit"}, 0
		}
		name := unsuitable.ReplaceAllString(strings.ToLower(folders[last]), "-")
		u.name, folders = strings.Trim(name+"-"+u.name, "-"), folders[:last]
	}
}

// write adds the files of a stage, and returns the text of cluster.hcl with it.
func (t *terragrunt) write(u *unit, text string) (string, error) {
	folder := path.Join("stages", u.layer, u.name)
	variables, err := t.copy(u, folder)
	if err != nil {
		return "", err
	}
	var wired, fixed []string
	needs, read := map[string]bool{}, map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(u.inputs)) {
		in := u.inputs[name]
		switch {
		case variables != nil && variables[name] == nil, !hclsyntax.ValidIdentifier(name):
			// Terragrunt has no use for it either.
		case in.lacks == isSecret, in.lacks == "" && in.parts == nil && confidential(name, in.value):
			t.note(in.at, "inputs."+name, isSecret, secretFix)
		case in.lacks != "":
			t.note(in.at, "inputs."+name, in.lacks, "set it in cluster.hcl, or wire it in stage.hcl")
		case in.parts == nil && strings.Contains(scaffold.Literal(in.value), t.top):
			t.note(in.at, "inputs."+name, "is a path in the old repository",
				"copy what it names into "+folder+", and set it in cluster.hcl")
		case in.parts == nil:
			fixed = append(fixed, "    "+name+" = "+scaffold.Literal(in.value))
		default:
			expr := in.parts[len(in.parts)-1]
			for i := len(in.parts) - 4; i >= 0; i -= 3 {
				d := t.dependency(in.parts[i+1])
				if d == nil {
					d = &unit{layer: "platform"}
					t.note(in.at, "inputs."+name,
						"depends on "+t.shown(in.parts[i+1])+", which becomes no stage",
						"correct it in "+folder)
				}
				needs[d.layer], read[in.parts[i+1]] = true, true
				expr = in.parts[i] + d.layer + "." + in.parts[i+2] + expr
			}
			wired = append(wired, "    "+name+" = "+expr)
		}
	}
	relative, _ := filepath.Rel(t.dir, u.dir) // both are absolute
	summary := cty.StringVal("Was the unit " + relative + " of Terragrunt")
	stage := "stage {\n  summary = " + scaffold.Literal(summary) + "\n"
	var after []string
	for _, dir := range u.after {
		d := t.dependency(dir)
		switch {
		case read[dir]: // a value orders it
		case d == nil:
			t.note(u.file, "dependencies", "names "+t.shown(dir)+", which becomes no stage",
				"order it in stage.hcl, if it becomes a stage")
		case rank(d.layer) < rank(u.layer):
			if !needs[d.layer] {
				after = append(after, d.layer)
			}
			needs[d.layer] = true
		default:
			t.note(u.file, "dependencies", "order it after "+d.name+" without a value of it",
				"stages of one layer are ordered by values: pass an output, or move one to another layer")
		}
	}
	if len(after) > 0 {
		stage += "  needs = [" + strings.Join(after, ", ") + "]\n"
	}
	if len(wired) > 0 {
		stage += "\n  inputs = {\n" + strings.Join(wired, "\n") + "\n  }\n"
	}
	t.result.Files[path.Join(folder, "stage.hcl")] = hclwrite.Format([]byte(stage + "}\n"))
	text += fmt.Sprintf("stage %q {\n  source = %q\n", u.name, u.layer+"/"+u.name)
	if len(fixed) > 0 {
		text += "\n  inputs = {\n" + strings.Join(fixed, "\n") + "\n  }\n"
	}
	return text + "}\n\n", nil
}

const isSecret = "looks like a secret, which castle writes nowhere"

// confidential reports whether a value, or one in it, is a credential or is named like one.
func confidential(name string, v cty.Value) (found bool) {
	syntax.Texts(v, func(keys []string, text string) {
		certain, named := secret.Likely(text)
		found = found || certain || named || slices.ContainsFunc(append(keys, name), secret.LikelyName)
	})
	return found
}

var assignment = regexp.MustCompile(`(\w+)"?\s*[=:]\s*"[^"$]`)

// writtenSecret is the name of a constant in HCL that looks like a credential; empty if there is none.
func writtenSecret(text string) string {
	for _, m := range assignment.FindAllStringSubmatch(text, -1) {
		if secret.LikelyName(m[1]) {
			return m[1]
		}
	}
	return ""
}

// module reads the module of a unit; nil: it is none in this repository.
func (t *terragrunt) module(u *unit) (dir string, module *tfconfig.Module) {
	dir = absolute(u.dir, strings.Replace(u.source, "//", "/", 1))
	if info, err := os.Stat(dir); err != nil || !info.IsDir() || !t.inside(dir) {
		return "", nil
	}
	module, _ = tfconfig.LoadModule(dir) // its errors are in it
	return dir, module
}

// copy adds the files of a local module, and returns its variables; nil of one elsewhere.
func (t *terragrunt) copy(u *unit, folder string) (map[string]*tfconfig.Variable, error) {
	from, module := t.module(u)
	defer maps.Copy(t.result.Files, t.files(u, folder)) // they replace files of the module
	if module == nil {
		t.note(u.file, "terraform.source", fmt.Sprintf("%q is no folder of this repository", u.source),
			"copy the module to "+folder)
		return nil, nil
	}
	isError := func(d tfconfig.Diagnostic) bool { return d.Severity == tfconfig.DiagError }
	if i := slices.IndexFunc(module.Diagnostics, isError); i >= 0 {
		d := module.Diagnostics[i]
		at := cmp.Or(d.Pos, &tfconfig.SourcePos{Filename: from, Line: 1}) // nil for an unreadable file
		return nil, fmt.Errorf("%s:%d: %s: %s", t.shown(at.Filename), at.Line, d.Summary, d.Detail)
	}
	for _, g := range u.generated {
		for _, block := range g.file.Body().Blocks() {
			if label := strings.Join(block.Labels(), ""); block.Type() == "variable" {
				module.Variables[label] = &tfconfig.Variable{Name: label}
			}
		}
	}
	err := fs.WalkDir(os.DirFS(from), ".", func(name string, e fs.DirEntry, err error) error {
		file := filepath.Join(from, name)
		left := func(reason, fix string) { t.note(place{t.shown(file), 1}, e.Name(), reason, fix) }
		switch {
		case err != nil:
		case e.IsDir() && name != "." && strings.HasPrefix(e.Name(), "."):
			return fs.SkipDir
		case e.IsDir():
			t.calls(from, file, folder)
		case strings.Contains(name, ".tfstate"), strings.HasPrefix(e.Name(), "terragrunt.") &&
			filepath.Ext(name) == ".hcl":
		case strings.HasPrefix(e.Name(), "terraform.tfvars"), strings.Contains(name, ".auto.tfvars"),
			strings.HasPrefix(e.Name(), ".") && e.Name() != ".terraform.lock.hcl":
			left("may have values, which castle copies nowhere", "set them in cluster.hcl")
		case strings.Contains(name, ".tfvars"), e.Name() == ".terraform.lock.hcl": // castle has its own
		case !e.Type().IsRegular():
			left("is a link", "copy what it leads to into "+folder)
		default:
			t.result.Files[path.Join(folder, name)], err = os.ReadFile(file)
		}
		return err
	})
	return module.Variables, err
}

// calls notes the modules that a folder of a module calls outside of it.
func (t *terragrunt) calls(from, dir, folder string) {
	module, _ := tfconfig.LoadModule(dir) // castle check reports its errors
	for _, call := range module.ModuleCalls {
		target, err := filepath.Rel(from, filepath.Join(dir, call.Source))
		if strings.HasPrefix(call.Source, ".") && (err != nil || !filepath.IsLocal(target)) {
			t.note(place{t.shown(call.Pos.Filename), call.Pos.Line}, "module."+call.Name,
				"is outside of the stage's folder", "copy it into "+folder)
		}
	}
}
