package docs_test

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
)

// configFile is a configuration file and the type that decodes it.
type configFile struct{ page, title, intro, typ string }

func configFiles() []configFile {
	const more = "\n[Configuration](../configuration.md) has an example, the order of values, and more."
	return []configFile{
		{"castle-hcl.md", "castle.hcl", "`castle.hcl` in the root of a repository is optional and applies " +
			"to all its clusters." + more, "castleSyntax"},
		{"cluster-hcl.md", "cluster.hcl", "`clusters/<name>/<platform>/cluster.hcl` lists the stages " +
			"of a cluster." + more, "clusterSyntax"},
		{"stage-hcl.md", "stage.hcl", "`stages/<layer>/<stage>/stage.hcl` describes a stage, beside its " +
			"Terraform files.\n[Writing stages](../stages.md) has examples.", "stageSyntax"},
		{"fleet-hcl.md", "fleet.hcl", "`fleet.hcl` in the root of a repository is optional and says in " +
			"which order the clusters are changed.\n[Fleets](../fleet.md) has an example.",
			"fleetSyntax"},
	}
}

// structs are the struct types of a package by name.
type structs map[string]*ast.StructType

// readTypes reads the types in the Go files of folders, with their comments.
func readTypes(folders ...string) (structs, error) {
	var files []string
	for _, folder := range folders {
		found, err := filepath.Glob(filepath.Join(folder, "*.go"))
		if err != nil {
			return nil, err
		}
		files = append(files, found...)
	}
	all := structs{}
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, text, parser.ParseComments)
		if err != nil {
			return nil, err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if spec, is := n.(*ast.TypeSpec); is {
				if s, is := spec.Type.(*ast.StructType); is {
					all[spec.Name.Name] = s
				}
			}
			return true
		})
	}
	return all, nil
}

// decoded is what a struct's field decodes: an attribute, a label, a block, or all other attributes.
type decoded struct {
	name, kind, typ, doc, place string
	named                       string // the type of the block, if it has a name
	block                       *ast.StructType
}

// fields returns the fields of a struct that have a tag hcl. Each needs a sentence.
func (t structs) fields(of string, s *ast.StructType) (all []decoded, err error) {
	for _, f := range s.Fields.List {
		if f.Tag == nil {
			continue
		}
		text, unquoted := strconv.Unquote(f.Tag.Value)
		tag := reflect.StructTag(text)
		name, kind, _ := strings.Cut(tag.Get("hcl"), ",")
		if unquoted != nil || strings.HasSuffix(kind, "_range") {
			continue // where it stands in the file
		}
		typ, block := t.typeOf(f.Type)
		one := decoded{name: name, kind: kind, typ: typ, block: block, named: t.nameOf(block),

			place: of + "." + f.Names[0].Name}
		one.doc = sentences()[one.place]
		if given := tag.Get("type"); given != "" {
			one.typ = given
		}
		if one.doc == "" {
			err = errors.Join(err, fmt.Errorf("internal/config: %s: %q has no sentence in "+
				"docs/reference_sentences_test.go", of, one.label()))
		}
		if one.typ == "" && kind != "block" && kind != "remain" {
			err = errors.Join(err, fmt.Errorf("internal/config: %s: %q has no tag type", of, one.label()))
		}
		all = append(all, one)
	}
	return all, err
}

func (f decoded) label() string {
	if f.kind == "remain" {
		return "…"
	}
	return f.name
}

// typeOf returns the type of an attribute as a user writes it, "" where the type does not tell, or the
// struct of a block.
func (t structs) typeOf(e ast.Expr) (string, *ast.StructType) {
	switch e := e.(type) {
	case *ast.StarExpr:
		return t.typeOf(e.X)
	case *ast.ArrayType:
		return t.typeOf(e.Elt)
	case *ast.StructType:
		return "", e
	case *ast.Ident:
		if s := t[e.Name]; s != nil {
			return "", s
		}
		return e.Name, nil
	}
	return "", nil
}

// file returns the page of a configuration file.
func (t structs) file(f configFile) (string, error) {
	root := t[f.typ]
	if root == nil {
		return "", fmt.Errorf("internal/config has no type %s", f.typ)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "# %s\n\n%s\n", f.title, f.intro)
	err := t.body(&b, f.typ, nil, root)
	return b.String(), err
}

// body writes the attributes of a block and then the blocks in it; path is where it stands.
func (t structs) body(b *strings.Builder, of string, path []string, s *ast.StructType) error {
	all, err := t.fields(of, s)
	head := "\n| attribute | type | meaning |\n| --- | --- | --- |\n"
	for _, f := range all {
		if f.kind == "block" || f.kind == "label" {
			continue
		}
		typ := f.typ
		if f.kind == "" {
			typ += ", required"
		}
		fmt.Fprintf(b, "%s| `%s` | %s | %s |\n", head, f.label(), typ, cell(f.doc))
		head = ""
	}
	for _, f := range all {
		if f.kind != "block" {
			continue
		}
		within := f.within()
		inner, innerErr := t.fields(within, f.block)
		heading, labels := f.name, ""
		for _, label := range inner {
			if label.kind == "label" {
				heading += fmt.Sprintf(" %q", strings.ToUpper(label.name))
				labels += fmt.Sprintf("\n- `%s`: %s", strings.ToUpper(label.name), label.doc)
			}
		}
		where := ""
		if len(path) > 0 {
			where = fmt.Sprintf(" In the block `%s`.", strings.Join(path, "` of `"))
		}
		fmt.Fprintf(b, "\n## %s\n\n%s.%s\n", heading, sentence(f.doc), where)
		if labels != "" {
			b.WriteString(labels + "\n")
		}
		if innerErr == nil {
			innerErr = t.body(b, within, append([]string{f.name}, path...), f.block)
		}
		err = errors.Join(err, innerErr)
	}
	return err
}

// sentence begins a text with a capital, unless it begins with castle's name.
func sentence(text string) string {
	if strings.HasPrefix(text, "castle ") {
		return text
	}
	return strings.ToUpper(text[:1]) + text[1:]
}

// within is the place of what is in a block.
func (f decoded) within() string {
	if f.named != "" {
		return f.named
	}
	return f.place
}

// nameOf returns the name of a type, "" if it has none.
func (t structs) nameOf(s *ast.StructType) string {
	for name, one := range t {
		if one == s && s != nil {
			return name
		}
	}
	return ""
}
